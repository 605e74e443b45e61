//! Packed files, archives, and files of other programs.

use grappa_input::Conversion;

use super::{Case, edges, of};

pub(super) const FILES: &[Case] = &[
    // Packed files and archives.
    edges(
        Conversion::UnpackBzip2,
        "$printf 'src,dst\\n0,1\\n1,2\\n2,0\\n' > e.csv && bzip2 e.csv",
        &["$bzip2"],
        "--edges e.csv.bz2",
        "--edges NEW.csv",
    ),
    edges(
        Conversion::UnpackXz,
        "$printf 'who,whom\\n0,1\\n1,2\\n2,0\\n' > e.csv && xz e.csv",
        &["$xz"],
        "--edges e.csv.xz",
        "--edges NEW.csv",
    ),
    edges(
        Conversion::UnpackLz4,
        "$printf '0,1\\n1,2\\n2,0\\n' > e.csv && lz4 -q e.csv e.csv.lz4",
        &["$lz4"],
        "--edges e.csv.lz4",
        "--edges NEW.csv",
    ),
    edges(
        Conversion::UnpackGzip,
        "import numpy as np\nimport gzip\nwith gzip.open('e.csv.gz', 'wb') as f: np.save(f, [[0, 1], [1, 2], [2, 0]])",
        &["numpy", "$gzip"],
        "--edges e.csv.gz",
        "--edges NEW.csv",
    ),
    edges(
        Conversion::UnpackZstd,
        "$python3 -c \"import numpy as np; np.save('e.npy', [[0, 1], [1, 2], [2, 0]])\" && mv e.npy e.csv \
         && zstd -q e.csv",
        &["numpy", "$zstd"],
        "--edges e.csv.zst",
        "--edges NEW.csv",
    ),
    edges(
        Conversion::UnpackTar,
        "$mkdir in && printf '0,1\\n1,2\\n' > in/a.csv && printf '2,0\\n' > in/b.csv && tar -cf e.tar -C in a.csv b.csv",
        &["$tar"],
        "--edges e.tar",
        "--edges NEW",
    ),
    edges(
        Conversion::UnpackZip,
        "import zipfile\nz = zipfile.ZipFile('e.zip', 'w'); z.writestr('a.csv', '0,1\\n1,2\\n'); z.writestr('b.csv', '2,0\\n'); z.close()",
        &[],
        "--edges e.zip",
        "--edges NEW",
    ),
    // Tables of other programs.
    edges(
        Conversion::AvroToParquet,
        "import fastavro\n\
         s = {'type': 'record', 'name': 'e', 'fields': [{'name': n, 'type': 'long'} for n in ('src', 'dst')]}\n\
         rows = [{'src': i, 'dst': (i + 1) % 3} for i in range(3)]\n\
         fastavro.writer(open('e.avro', 'wb'), fastavro.parse_schema(s), rows)",
        &["fastavro", "pandas", "pyarrow"],
        "--edges e.avro",
        "--edges NEW.parquet",
    ),
    edges(
        Conversion::FeatherToParquet,
        "import pyarrow as pa, pyarrow.feather as f\nf.write_feather(pa.table({'src': [0, 1, 2], 'dst': [1, 2, 0]}), 'e.feather')",
        &["pyarrow"],
        "--edges e.feather",
        "--edges NEW.parquet",
    ),
    edges(
        Conversion::OrcToParquet,
        "import pyarrow as pa, pyarrow.orc as o\no.write_table(pa.table({'src': [0, 1, 2], 'dst': [1, 2, 0]}), 'e.orc')",
        &["pyarrow"],
        "--edges e.orc",
        "--edges NEW.parquet",
    ),
    edges(
        Conversion::ExcelToText,
        "import pandas as pd\npd.DataFrame({'src': [0, 1, 2], 'dst': [1, 2, 0]}).to_excel('e.xlsx', index=False)",
        &["pandas", "openpyxl"],
        "--edges e.xlsx",
        "--edges NEW.csv",
    ),
    edges(
        Conversion::SqliteToText,
        "import sqlite3\ndb = sqlite3.connect('e.db')\ndb.executescript('create table links (src, dst); insert into links values \
         (0, 1), (1, 2), (2, 0)')",
        &[],
        "--edges e.db",
        "--edges NEW-links.csv",
    ),
    edges(
        Conversion::Hdf5ToArrays,
        "import h5py\nwith h5py.File('e.h5', 'w') as f: f['g/edges'] = [[0, 1], [1, 2], [2, 0]]",
        &["h5py"],
        "--edges e.h5",
        "--edges NEW-g-edges.npy",
    ),
    of(
        Conversion::Matlab73ToArrays,
        "import h5py, numpy as np\nwith h5py.File('x.mat', 'w', userblock_size=512) as f: f['x'] = np.array([[1., 3.], [2., 4.]])\n\
         f = open('x.mat', 'r+b'); f.write(b'MATLAB 7.3 MAT-file'); open('e.txt', 'w').write('0 1')",
        &["h5py"],
        "--features x.mat --edges e.txt",
        "--features NEW-x.npy --edges e.txt",
        "0>1",
    )
    .features("1,2 3,4"),
    of(
        Conversion::MatlabToArrays,
        "import scipy.io as io, scipy.sparse as sp\nio.savemat('a.mat', {'A': sp.csr_matrix([[0, 2.], [0, 0]]), 'y': [[0, 1]]})",
        &["scipy"],
        "--edges a.mat",
        "--edges NEW-A.npz",
        "0>1:2",
    ),
    // Pickles and PyTorch.
    edges(
        Conversion::PickleToText,
        "import networkx as nx, pickle\npickle.dump(nx.DiGraph([(0, 1), (1, 2), (2, 0)]), open('g.gpickle', 'wb'))",
        &["networkx", "numpy"],
        "--edges g.gpickle",
        "--edges NEW.csv",
    ),
    edges(
        Conversion::PickleToText,
        "import pickle\npickle.dump({0: [1], 1: [2], 2: [0]}, open('ind.cora.graph', 'wb'))",
        &["numpy"],
        "--edges ind.cora.graph",
        "--edges NEW.csv",
    ),
    edges(
        Conversion::PickleToText,
        "import pandas as pd\npd.DataFrame({'dst': [1, 2, 0], 'src': [0, 1, 2]}).to_pickle('e.pkl')",
        &["pandas", "numpy"],
        "--edges e.pkl",
        "--edges NEW.csv",
    ),
    of(
        Conversion::PickleToText,
        "import numpy as np, pickle\npickle.dump(np.array([1, 0]), open('y.pkl', 'wb')); open('e.txt', 'w').write('0 1')",
        &["numpy"],
        "--labels y.pkl --edges e.txt",
        "--labels NEW.csv --edges e.txt",
        "0>1",
    )
    .labels("1 0"),
    edges(
        Conversion::PickleToText,
        "import pickle, scipy.sparse as sp\npickle.dump(sp.csr_matrix([[0, 1, 0], [0, 0, 1], [1, 0, 0]]), open('a.pkl', 'wb'))",
        &["scipy", "numpy"],
        "--edges a.pkl",
        "--edges NEW.csv",
    ),
    // A dataset as PyTorch Geometric keeps it: two edges, which an array of NumPy cannot tell from their transpose.
    of(
        Conversion::PyTorchToArrays,
        "import torch, torch_geometric.data as d\n\
         data = d.Data(x=torch.tensor([[1., 2.], [3., 4.]]), edge_index=torch.tensor([[0, 0], [1, 0]]), y=torch.tensor([1, 0]), \
         train_mask=torch.tensor([True, False]))\n\
         torch.save((data.to_dict(), None, d.Data), 'data.pt')",
        &["torch", "torch_geometric", "numpy"],
        "--edges data.pt",
        "--edges NEW-edge_index.npy --features NEW-x.npy --labels NEW-y.npy --train NEW-train_mask.npy",
        "0>1&0>0",
    )
    .features("1,2 3,4")
    .labels("1 0"),
    of(
        Conversion::PyTorchToArrays,
        "import torch, torch_geometric.data as d\n\
         torch.save(d.Data(x=torch.tensor([[1.], [3.]])), 'data.pt', _use_new_zipfile_serialization=False)\n\
         open('e.txt', 'w').write('0 1')",
        &["torch", "torch_geometric", "numpy"],
        "--features data.pt --edges e.txt",
        "--features NEW-x.npy --edges e.txt",
        "0>1",
    )
    .features("1 3"),
    of(
        Conversion::PyTorchToArrays,
        "import torch\ntorch.save(torch.tensor([1, 0]), 'y.pt'); open('e.txt', 'w').write('0 1')",
        &["torch", "numpy"],
        "--labels y.pt --edges e.txt",
        "--labels NEW-tensor.npy --edges e.txt",
        "0>1",
    )
    .labels("1 0"),
    edges(
        Conversion::DglToArrays,
        "import dgl\ndgl.save_graphs('g.bin', [dgl.graph(([0, 1, 2], [1, 2, 0]))])",
        &["dgl"],
        "--edges g.bin",
        "--edges NEW-edges.npy",
    ),
];
