//! Arrays, matrices and Parquet that are not read as they are.

use grappa_input::Conversion;

use super::{Case, edges, of};

pub(super) const ARRAYS: &[Case] = &[
    // Arrays.
    of(
        Conversion::ComplexArray,
        "import numpy as np\nnp.save('x.npy', np.array([[1+2j], [3+4j]], 'c8')); open('e.txt', 'w').write('0 1')",
        &["numpy"],
        "--features x.npy --edges e.txt",
        "--features NEW.npy --edges e.txt",
        "0>1",
    )
    .features("1,2 3,4"),
    of(
        Conversion::TimeArray,
        "import numpy as np\nnp.save('x.npy', np.array([5, 7], 'M8[s]')); open('e.txt', 'w').write('0 1')",
        &["numpy"],
        "--features x.npy --edges e.txt",
        "--features NEW.npy --edges e.txt",
        "0>1",
    )
    .features("5 7"),
    of(
        Conversion::Bfloat16Array,
        "import numpy as np\nnp.save('x.npy', np.array([0x3fc0, 0x4000], 'u2').view('V2')); open('e.txt', 'w').write('0 1')",
        &["numpy"],
        "--features x.npy --edges e.txt",
        "--features NEW.npy --edges e.txt",
        "0>1",
    )
    .features("1.5 2"),
    edges(
        Conversion::WideArray,
        "import numpy as np\nnp.save('e.npy', np.array([[0, 1], [1, 2], [2, 0]], 'f2'))",
        &["numpy"],
        "--edges e.npy",
        "--edges NEW.npy",
    ),
    edges(
        Conversion::ArrayToText,
        "import numpy as np\nnp.save('e.npy', np.array([[0, 1, 2], [1, 2, 0]], object))",
        &["numpy"],
        "--edges e.npy",
        "--edges NEW.csv",
    ),
    of(
        Conversion::ArrayToText,
        "import numpy as np\nnp.save('e.npy', np.array([['ann', 'bob'], ['bob', 'a, b']]))",
        &["numpy"],
        "--edges e.npy --ids string",
        "--edges NEW.csv --ids string",
        "ann>bob&bob>a, b",
    ),
    of(
        Conversion::ArrayToText,
        "import numpy as np\nnp.save('e.npy', np.array([[b'ann', b'bob']], 'S3'))",
        &["numpy"],
        "--edges e.npy --ids string",
        "--edges NEW.csv --ids string",
        "ann>bob",
    ),
    of(
        Conversion::RecordsToText,
        "import numpy as np\nnp.save('e.npy', np.array([(0, 1, .5), (1, 0, 2)], [('src', 'i8'), ('dst', 'i4'), ('weight', 'f4')]))",
        &["numpy"],
        "--edges e.npy",
        "--edges NEW.csv",
        "0>1:0.5&1>0:2",
    ),
    of(
        Conversion::ColumnsToRows,
        "import numpy as np\nnp.savez_compressed('x.npz', x=np.array([[1, 2], [3, 4]], order='F')); open('e.txt', 'w').write('0 1')",
        &["numpy"],
        "--features x.npz --edges e.txt",
        "--features NEW.npz --edges e.txt",
        "0>1",
    )
    .features("1,2 3,4"),
    edges(
        Conversion::NamedArray,
        "import numpy as np\nnp.savez('e.npz', links=[[0, 1], [1, 2], [2, 0]], other=[1])",
        &["numpy"],
        "--edges e.npz",
        "--edges NEW.npy",
    )
    .with("links"),
    of(
        Conversion::FlattenRows,
        "import numpy as np\nnp.save('x.npy', np.arange(8.).reshape(2, 2, 2)); open('e.txt', 'w').write('0 1')",
        &["numpy"],
        "--features x.npy --edges e.txt",
        "--features NEW.npy --edges e.txt",
        "0>1",
    )
    .features("0,1,2,3 4,5,6,7"),
    of(
        Conversion::DenseAdjacency,
        "import numpy as np\nnp.save('a.npy', np.eye(4, k=1, dtype=bool))",
        &["numpy"],
        "--edges a.npy",
        "--edges NEW.npy",
        "0>1&1>2&2>3",
    ),
    of(
        Conversion::SplitWeights,
        "import numpy as np\nnp.save('e.npy', np.array([[0, 1, .5], [1, 0, 2], [1, 1, 3], [0, 0, 4]]))",
        &["numpy"],
        "--edges e.npy",
        "--edges NEW.npy --weights NEW-weights.npy",
        "0>1:0.5&1>0:2&1>1:3&0>0:4",
    ),
    of(
        Conversion::SplitWeights,
        "import numpy as np\nnp.save('e.npy', np.array([[0, 1, 0, 1], [1, 0, 0, 1], [5, 7, 8, 9]]))",
        &["numpy"],
        "--edges e.npy",
        "--edges NEW.npy --weights NEW-weights.npy",
        "0>1:5&1>0:7&0>0:8&1>1:9",
    ),
    of(
        Conversion::RavelIntegers,
        "import numpy as np\nnp.save('i.npy', np.array([[7, 5]])); open('e.txt', 'w').write('5 7')",
        &["numpy"],
        "--node-ids i.npy --ids sparse --edges e.txt",
        "--node-ids NEW.npy --ids sparse --edges e.txt",
        "5>7",
    ),
    edges(
        Conversion::FirstMask,
        "import numpy as np\nnp.save('m.npy', np.eye(3, dtype=bool)); open('e.txt', 'w').write('0 1\\n1 2\\n2 0')",
        &["numpy"],
        "--train m.npy --edges e.txt",
        "--train NEW.npy --edges e.txt",
    ),
    edges(
        Conversion::IntegersToMask,
        "import numpy as np\nnp.save('m.npy', np.array([0, 1, 1])); open('e.txt', 'w').write('0 1\\n1 2\\n2 0')",
        &["numpy"],
        "--train m.npy --edges e.txt",
        "--train NEW.npy --edges e.txt",
    ),
    // Matrices.
    edges(
        Conversion::SparseToCsr,
        "import scipy.sparse as sp\nsp.save_npz('a.npz', sp.dia_matrix([[0, 1, 0], [0, 0, 1], [1, 0, 0]]))",
        &["scipy"],
        "--edges a.npz",
        "--edges NEW.npz --weight none",
    ),
    of(
        Conversion::BipartiteNpz,
        "import scipy.sparse as sp\nsp.save_npz('a.npz', sp.csr_matrix([[0, 3, 0], [1, 0, 2]]))",
        &["scipy"],
        "--edges a.npz",
        "--edges NEW.npz",
        "0>3:3&1>2:1&1>4:2",
    ),
    of(
        Conversion::BipartiteMtx,
        "import scipy.io as io, scipy.sparse as sp\nio.mmwrite('a.mtx', sp.csr_matrix([[0, 3, 0], [1, 0, 2]]))",
        &["scipy"],
        "--edges a.mtx",
        "--edges NEW.mtx",
        "0>3:3&1>2:1&1>4:2",
    ),
    of(
        Conversion::GeneralMtx,
        "import scipy.io as io\nio.mmwrite('a.mtx', __import__('numpy').array([[0, 2.5], [0, 0]]))",
        &["scipy"],
        "--edges a.mtx",
        "--edges NEW.mtx",
        "0>1:2.5",
    ),
    // Parquet.
    edges(
        Conversion::ParquetToIntegers,
        "import decimal, pyarrow as pa, pyarrow.parquet as p\n\
         src = pa.array([decimal.Decimal(i) for i in (0, 1, 2)], pa.decimal128(5, 0))\n\
         p.write_table(pa.table({'src': src, 'dst': [1, 2, 0]}), 'e.parquet')",
        &["pyarrow"],
        "--edges e.parquet",
        "--edges NEW.parquet",
    )
    .with("src"),
    edges(
        Conversion::ParquetToStrings,
        "import datetime, pyarrow as pa, pyarrow.parquet as p\n\
         p.write_table(pa.table({'src': ['0', '1', '2'], 'dst': [1, 2, 0]}), 'e.parquet')",
        &["pyarrow"],
        "--edges e.parquet --ids string",
        "--edges NEW.parquet --ids string",
    )
    .with("dst"),
    edges(
        Conversion::RecompressParquet,
        "import pyarrow as pa, pyarrow.parquet as p\n\
         p.write_table(pa.table({'src': [0, 1, 2], 'dst': [1, 2, 0]}), 'e.parquet', compression='brotli')",
        &["pyarrow"],
        "--edges e.parquet",
        "--edges NEW.parquet",
    ),
    edges(
        Conversion::ParquetLists,
        "import pandas as pd\npd.DataFrame({'src': [0, 1, 2], 'dst': [[1], [2], [0]]}).to_parquet('e.parquet')",
        &["pandas", "pyarrow"],
        "--edges e.parquet",
        "--edges NEW.parquet",
    )
    .with("dst"),
    edges(
        Conversion::ParquetStructs,
        "import pyarrow as pa, pyarrow.parquet as p\n\
         p.write_table(pa.table({'e': [{'src': i, 'dst': (i + 1) % 3} for i in range(3)]}), 'e.parquet')",
        &["pyarrow"],
        "--edges e.parquet",
        "--edges NEW.parquet --src e.src --dst e.dst",
    ),
    of(
        Conversion::ParquetToFloats,
        "import pyarrow as pa, pyarrow.parquet as p\n\
         p.write_table(pa.table({'src': [0], 'dst': [1], 'weight': ['0.5']}), 'e.parquet')",
        &["pyarrow"],
        "--edges e.parquet",
        "--edges NEW.parquet",
        "0>1:0.5",
    )
    .with("weight"),
];
