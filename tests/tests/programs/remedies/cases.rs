//! Files that are refused with a command, as [`super::Case`] describes them.

/// Arrays, matrices and Parquet that are not read as they are.
pub(super) const ARRAYS: &[&str] = &[
    // Arrays.
    "ComplexArray | np.save('x.npy', np.array([[1+2j], [3+4j]], 'c8')) | numpy | --features x.npy --edges e.txt \
     | --features NEW.npy --edges e.txt | 0>1 | 1,2 3,4",
    "TimeArray | np.save('x.npy', np.array([5, 7], 'M8[s]')) | numpy | --features x.npy --edges e.txt \
     | --features NEW.npy --edges e.txt | 0>1 | 5 7",
    "Bfloat16Array | np.save('x.npy', np.array([0x3fc0, 0x4000], 'u2').view('V2')) | numpy \
     | --features x.npy --edges e.txt | --features NEW.npy --edges e.txt | 0>1 | 1.5 2",
    "WideArray | np.save('e.npy', np.array([[0, 1], [1, 2], [2, 0]], 'f2')) | numpy | --edges e.npy \
     | --edges NEW.npy",
    "ArrayToText | np.save('e.npy', np.array([[0, 1, 2], [1, 2, 0]], object)) | numpy | --edges e.npy \
     | --edges NEW.csv",
    "ArrayToText | np.save('e.npy', np.array([['ann', 'bob'], ['bob', 'a, b']])) | numpy \
     | --edges e.npy --ids string | --edges NEW.csv --ids string | ann>bob&bob>a, b",
    "ArrayToText | np.save('e.npy', np.array([[b'ann', b'bob']], 'S3')) | numpy | --edges e.npy --ids string \
     | --edges NEW.csv --ids string | ann>bob",
    "RecordsToText | np.save('e.npy', np.array([(0, 1, .5), (1, 0, 2)], [('src', 'i8'), ('dst', 'i4'), ('weight', \
     'f4')])) | numpy | --edges e.npy | --edges NEW.csv | 0>1:0.5&1>0:2",
    "ColumnsToRows | np.savez_compressed('x.npz', x=np.array([[1, 2], [3, 4]], order='F')) | numpy \
     | --features x.npz --edges e.txt | --features NEW.npz --edges e.txt | 0>1 | 1,2 3,4",
    "NamedArray(links) | np.savez('e.npz', links=[[0, 1], [1, 2], [2, 0]], other=[1]) | numpy | --edges e.npz \
     | --edges NEW.npy",
    "FlattenRows | np.save('x.npy', np.arange(8.).reshape(2, 2, 2)) | numpy | --features x.npy --edges e.txt \
     | --features NEW.npy --edges e.txt | 0>1 | 0,1,2,3 4,5,6,7",
    "DenseAdjacency | np.save('a.npy', np.eye(4, k=1, dtype=bool)) | numpy | --edges a.npy | --edges NEW.npy \
     | 0>1&1>2&2>3",
    "SplitWeights | np.save('e.npy', np.array([[0, 1, .5], [1, 0, 2], [1, 1, 3], [0, 0, 4]])) | numpy \
     | --edges e.npy | --edges NEW.npy --weights NEW-weights.npy | 0>1:0.5&1>0:2&1>1:3&0>0:4",
    "SplitWeights | np.save('e.npy', np.array([[0, 1, 0, 1], [1, 0, 0, 1], [5, 7, 8, 9]])) | numpy | --edges e.npy \
     | --edges NEW.npy --weights NEW-weights.npy | 0>1:5&1>0:7&0>0:8&1>1:9",
    "RavelIntegers | np.save('i.npy', np.array([[7, 5]])); open('e.txt', 'w').write('5 7') | numpy \
     | --node-ids i.npy --ids sparse --edges e.txt | --node-ids NEW.npy --ids sparse --edges e.txt | 5>7",
    "FirstMask | np.save('m.npy', np.eye(3, dtype=bool)); open('e.txt', 'w').write('0 1\\n1 2\\n2 0') | numpy \
     | --train m.npy --edges e.txt | --train NEW.npy --edges e.txt",
    "IntegersToMask | np.save('m.npy', np.array([0, 1, 1])); open('e.txt', 'w').write('0 1\\n1 2\\n2 0') | numpy \
     | --train m.npy --edges e.txt | --train NEW.npy --edges e.txt",
    // Matrices.
    "SparseToCsr | import scipy.sparse as sp\nsp.save_npz('a.npz', sp.dia_matrix([[0, 1, 0], [0, 0, 1], [1, 0, 0]])) \
     | scipy | --edges a.npz | --edges NEW.npz --weight none",
    "BipartiteNpz | import scipy.sparse as sp\nsp.save_npz('a.npz', sp.csr_matrix([[0, 3, 0], [1, 0, 2]])) | scipy \
     | --edges a.npz | --edges NEW.npz | 0>3:3&1>2:1&1>4:2",
    "BipartiteMtx | import scipy.io as io, scipy.sparse as sp\nio.mmwrite('a.mtx', sp.csr_matrix([[0, 3, 0], [1, \
     0, 2]])) | scipy | --edges a.mtx | --edges NEW.mtx | 0>3:3&1>2:1&1>4:2",
    "GeneralMtx | import scipy.io as io\nio.mmwrite('a.mtx', __import__('numpy').array([[0, 2.5], [0, 0]])) | scipy \
     | --edges a.mtx | --edges NEW.mtx | 0>1:2.5",
    // Parquet.
    "ParquetToIntegers(src) | import decimal, pyarrow as pa, pyarrow.parquet as p\n\
     src = pa.array([decimal.Decimal(i) for i in (0, 1, 2)], pa.decimal128(5, 0))\n\
     p.write_table(pa.table({'src': src, 'dst': [1, 2, 0]}), 'e.parquet') | pyarrow | --edges e.parquet \
     | --edges NEW.parquet",
    "ParquetToStrings(dst) | import datetime, pyarrow as pa, pyarrow.parquet as p\n\
     p.write_table(pa.table({'src': ['0', '1', '2'], 'dst': [1, 2, 0]}), 'e.parquet') | pyarrow \
     | --edges e.parquet --ids string | --edges NEW.parquet --ids string",
    "RecompressParquet | import pyarrow as pa, pyarrow.parquet as p\np.write_table(pa.table({'src': [0, 1, 2], \
     'dst': [1, 2, 0]}), 'e.parquet', compression='brotli') | pyarrow | --edges e.parquet | --edges NEW.parquet",
    "ParquetLists(dst) | import pandas as pd\npd.DataFrame({'src': [0, 1, 2], 'dst': [[1], [2], \
     [0]]}).to_parquet('e.parquet') | pandas pyarrow | --edges e.parquet | --edges NEW.parquet",
    "ParquetStructs | import pyarrow as pa, pyarrow.parquet as p\np.write_table(pa.table({'e': [{'src': i, 'dst': \
     (i + 1) % 3} for i in range(3)]}), 'e.parquet') | pyarrow | --edges e.parquet \
     | --edges NEW.parquet --src e.src --dst e.dst",
    "ParquetToFloats(weight) | import pyarrow as pa, pyarrow.parquet as p\n\
     p.write_table(pa.table({'src': [0], 'dst': [1], 'weight': ['0.5']}), 'e.parquet') | pyarrow | --edges e.parquet \
     | --edges NEW.parquet | 0>1:0.5",
];

/// Packed files, archives, and files of other programs.
pub(super) const FILES: &[&str] = &[
    // Packed files and archives.
    "UnpackBzip2 | $printf 'src,dst\\n0,1\\n1,2\\n2,0\\n' > e.csv && bzip2 e.csv | $bzip2 | --edges e.csv.bz2 \
     | --edges NEW.csv",
    "UnpackXz | $printf 'who,whom\\n0,1\\n1,2\\n2,0\\n' > e.csv && xz e.csv | $xz | --edges e.csv.xz \
     | --edges NEW.csv",
    "UnpackLz4 | $printf '0,1\\n1,2\\n2,0\\n' > e.csv && lz4 -q e.csv e.csv.lz4 | $lz4 | --edges e.csv.lz4 \
     | --edges NEW.csv",
    "UnpackGzip | import gzip\nwith gzip.open('e.csv.gz', 'wb') as f: np.save(f, [[0, 1], [1, 2], [2, 0]]) \
     | numpy $gzip | --edges e.csv.gz | --edges NEW.csv",
    "UnpackZstd | $python3 -c \"import numpy as np; np.save('e.npy', [[0, 1], [1, 2], [2, 0]])\" && mv e.npy e.csv \
     && zstd -q e.csv | numpy $zstd | --edges e.csv.zst | --edges NEW.csv",
    "UnpackTar | $mkdir in && printf '0,1\\n1,2\\n' > in/a.csv && printf '2,0\\n\
     ' > in/b.csv && tar -cf e.tar -C in a.csv b.csv | $tar | --edges e.tar | --edges NEW",
    "UnpackZip | import zipfile\nz = zipfile.ZipFile('e.zip', 'w'); z.writestr('a.csv', '0,1\\n1,2\\n\
     '); z.writestr('b.csv', '2,0\\n'); z.close() |  | --edges e.zip | --edges NEW",
    // Tables of other programs.
    "AvroToParquet | import fastavro\ns = {'type': 'record', 'name': 'e', 'fields': [{'name': n, 'type': 'long'} \
     for n in ('src', 'dst')]}\nrows = [{'src': i, 'dst': (i + 1) % 3} for i in range(3)]\n\
     fastavro.writer(open('e.avro', 'wb'), fastavro.parse_schema(s), rows) | fastavro pandas pyarrow \
     | --edges e.avro | --edges NEW.parquet",
    "FeatherToParquet | import pyarrow as pa, pyarrow.feather as f\nf.write_feather(pa.table({'src': [0, 1, 2], \
     'dst': [1, 2, 0]}), 'e.feather') | pyarrow | --edges e.feather | --edges NEW.parquet",
    "OrcToParquet | import pyarrow as pa, pyarrow.orc as o\no.write_table(pa.table({'src': [0, 1, 2], 'dst': [1, \
     2, 0]}), 'e.orc') | pyarrow | --edges e.orc | --edges NEW.parquet",
    "ExcelToText | import pandas as pd\npd.DataFrame({'src': [0, 1, 2], 'dst': [1, 2, 0]}).to_excel('e.xlsx', \
     index=False) | pandas openpyxl | --edges e.xlsx | --edges NEW.csv",
    "SqliteToText | import sqlite3\ndb = sqlite3.connect('e.db')\ndb.executescript('create table links (src, dst); \
     insert into links values (0, 1), (1, 2), (2, 0)') |  | --edges e.db | --edges NEW-links.csv",
    "Hdf5ToArrays | import h5py\nwith h5py.File('e.h5', 'w') as f: f['g/edges'] = [[0, 1], [1, 2], [2, 0]] | h5py \
     | --edges e.h5 | --edges NEW-g-edges.npy",
    "Matlab73ToArrays | import h5py, numpy as np\nwith h5py.File('x.mat', 'w', userblock_size=512) as f: f['x'] = \
     np.array([[1., 3.], [2., 4.]])\nf = open('x.mat', 'r+b'); f.write(b'MATLAB 7.3 MAT-file') | h5py \
     | --features x.mat --edges e.txt | --features NEW-x.npy --edges e.txt | 0>1 | 1,2 3,4",
    "MatlabToArrays | import scipy.io as io, scipy.sparse as sp\nio.savemat('a.mat', {'A': sp.csr_matrix([[0, 2.], \
     [0, 0]]), 'y': [[0, 1]]}) | scipy | --edges a.mat | --edges NEW-A.npz | 0>1:2",
    // Pickles and PyTorch.
    "PickleToText | import networkx as nx, pickle\npickle.dump(nx.DiGraph([(0, 1), (1, 2), (2, 0)]), \
     open('g.gpickle', 'wb')) | networkx numpy | --edges g.gpickle | --edges NEW.csv",
    "PickleToText | import pickle\npickle.dump({0: [1], 1: [2], 2: [0]}, open('ind.cora.graph', 'wb')) | numpy \
     | --edges ind.cora.graph | --edges NEW.csv",
    "PickleToText | import pandas as pd\npd.DataFrame({'dst': [1, 2, 0], 'src': [0, 1, 2]}).to_pickle('e.pkl') \
     | pandas numpy | --edges e.pkl | --edges NEW.csv",
    "PickleToText | import pickle\npickle.dump(np.array([1, 0]), open('y.pkl', 'wb')) | numpy \
     | --labels y.pkl --edges e.txt | --labels NEW.csv --edges e.txt | 0>1 |  | 1 0",
    "PickleToText | import pickle, scipy.sparse as sp\npickle.dump(sp.csr_matrix([[0, 1, 0], [0, 0, 1], [1, 0, \
     0]]), open('a.pkl', 'wb')) | scipy numpy | --edges a.pkl | --edges NEW.csv",
    // A dataset as PyTorch Geometric keeps it: two edges, which an array of NumPy cannot tell from their transpose.
    "PyTorchToArrays | import torch, torch_geometric.data as d\ndata = d.Data(x=torch.tensor([[1., 2.], [3., \
     4.]]), edge_index=torch.tensor([[0, 0], [1, 0]]), y=torch.tensor([1, 0]), train_mask=torch.tensor([True, \
     False]))\ntorch.save((data.to_dict(), None, d.Data), 'data.pt') | torch torch_geometric numpy | --edges data.pt \
     | --edges NEW-edge_index.npy --features NEW-x.npy --labels NEW-y.npy --train NEW-train_mask.npy | 0>1&0>0 \
     | 1,2 3,4 | 1 0",
    "PyTorchToArrays | import torch, torch_geometric.data as d\ntorch.save(d.Data(x=torch.tensor([[1.], [3.]])), \
     'data.pt', _use_new_zipfile_serialization=False) | torch torch_geometric numpy \
     | --features data.pt --edges e.txt | --features NEW-x.npy --edges e.txt | 0>1 | 1 3",
    "PyTorchToArrays | import torch\ntorch.save(torch.tensor([1, 0]), 'y.pt') | torch numpy \
     | --labels y.pt --edges e.txt | --labels NEW-tensor.npy --edges e.txt | 0>1 |  | 1 0",
    "DglToArrays | import dgl\ndgl.save_graphs('g.bin', [dgl.graph(([0, 1, 2], [1, 2, 0]))]) | dgl | --edges g.bin \
     | --edges NEW-edges.npy",
];

/// Graphs in other formats of text, text in other encodings, and the commands of warnings.
pub(super) const TEXT: &[&str] = &[
    // Graphs of other formats.
    "GraphMlToEdges | import networkx as nx\nnx.write_graphml(nx.DiGraph([(0, 1), (1, 2), (2, 0)]), 'g.graphml') \
     | networkx | --edges g.graphml | --edges NEW",
    "GexfToEdges | import networkx as nx\nnx.write_gexf(nx.Graph([(0, 1)]), 'g.gexf') | networkx | --edges g.gexf \
     | --edges NEW | 0>1&1>0",
    "GmlToEdges | import networkx as nx\nnx.write_gml(nx.DiGraph([(0, 1), (1, 2), (2, 0)]), 'g.gml') | networkx \
     | --edges g.gml | --edges NEW",
    "PajekToEdges | import networkx as nx\nnx.write_pajek(nx.DiGraph([('ann', 'New York')]), 'g.net') | networkx \
     | --edges g.net --ids string | --edges NEW --ids string | ann>New York",
    "DotToEdges | open('g.dot', 'w').write('digraph {\\n0 -> 1;\\n1 -> 2;\\n2 -> 0;\\n}\\n') | networkx pydot \
     | --edges g.dot | --edges NEW",
    "DimacsToEdges | $printf 'c by hand\\np sp 3 3\\na 1 2 9\\na 2 3 9\\na 3 1 9\\n' > g.gr | $awk | --edges g.gr \
     | --edges NEW",
    "NTriplesToEdges | $printf '<a> <knows> <b> .\\n<a> <name> \"ann\" .\\n<b> <knows> <a> .\\n' > g.nt | $awk \
     | --edges g.nt --ids string | --edges NEW --ids string | <a>><b>&<b>><a>",
    "MetisToEdges | $printf '3 2\\n2\\n1 3\\n2\\n' > g.graph | $awk | --edges g.graph | --edges NEW \
     | 0>1&1>0&1>2&2>1",
    "ListsToEdges | $printf '0 1 2 3\\n1 2\\n2 0 1 3 4\\n3\\n' > g.adj | $awk | --edges g.adj | --edges NEW \
     | 0>1&0>2&0>3&1>2&2>0&2>1&2>3&2>4",
    "ListsToEdges(-F',' ) | $printf 'a,b,c,d\\nb,c\\nc,a,b,d,e\\nd\\n' > g.csv | $awk | --edges g.csv --ids string \
     | --edges NEW --ids string | a>b&a>c&a>d&b>c&c>a&c>b&c>d&c>e",
    "JsonToText | import json, networkx as nx\njson.dump(nx.node_link_data(nx.DiGraph([(0, 1), (1, 2), (2, 0)])), \
     open('g.json', 'w')) | networkx | --edges g.json | --edges NEW.csv",
    "JsonToText | $printf '[[0, 1], [1, 2], [2, 0]]' > e.json |  | --edges e.json | --edges NEW.csv",
    "JsonToText | $printf '{\"0\": [1], \"1\": [2], \"2\": [0]}' > e.json |  | --edges e.json | --edges NEW.csv",
    "JsonLinesToText | $printf '{\"src\": 0, \"dst\": 1}\\n{\"src\": 1, \"dst\": 2}\\n{\"src\": 2, \"dst\": 0}\\n\
     ' > e.jsonl |  | --edges e.jsonl | --edges NEW.csv",
    // Text.
    "Utf16ToUtf8 | open('e.csv', 'w', encoding='utf-16').write('src,dst\\n0,1\\n1,2\\n2,0\\n') | $iconv \
     | --edges e.csv | --edges NEW.csv",
    "Latin1ToUtf8 | open('e.csv', 'w', encoding='latin1').write('J\\u00fcrgen,Zo\\u00eb\\n') | $iconv \
     | --edges e.csv --ids string | --edges NEW.csv --ids string | J\u{fc}rgen>Zo\u{eb}",
    "MacLineEnds | $printf '0 1\\r1 2\\r2 0\\r' > e.csv | $tr | --edges e.csv | --edges NEW.csv",
    "DecimalCommas | $printf '0;1;0,5\\n1;0;2,5\\n' > e.txt | $tr | --edges e.txt --separator semicolon \
     | --edges NEW | 0>1:0.5&1>0:2.5",
    "RemoveComments | $printf '0,1\\n# more\\n1,2\\n2,0\\n' > e.csv | $grep | --edges e.csv | --edges NEW.csv",
    "PlainFields | open('e.csv', 'w').write('\"New\\nYork\",Rome\\nRome,\"the \\\\\"big\\\\\" one\"\\n') |  \
     | --edges e.csv --ids string | --edges NEW.csv --ids string | New York>Rome&Rome>the \"big\" one",
    "PlainText | open('e.txt', 'w').write('0\\u00a01\\n\\u200b1 \\uff12\\u20282 0\\x1a\\n') |  | --edges e.txt \
     | --edges NEW",
    "RemoveNuls | $printf '0 1\\n1 2\\n2 0\\n\\000\\000\\000\\000' > e.txt | $tr | --edges e.txt | --edges NEW.txt",
    "DigitsOnly | $printf '(0, 1)\\n(1, 2)\\n(2, 0)\\n' > e.txt | $tr | --edges e.txt | --edges NEW",
    "DigitsOnly | $printf '0->1\\n1->2\\n2->0\\n' > e.txt | $tr | --edges e.txt | --edges NEW",
    "TrimEnds | $printf '0,1\\n1,2,\\n2,0\\n' > e.csv | $sed | --edges e.csv | --edges NEW.csv",
    "ListToText | $printf '[(0, 1), (1, 2), (2, 0)]' > e.txt |  | --edges e.txt | --edges NEW.csv",
    "RemoveHeader | $printf 'sep=;\\r\\nsrc;dst\\r\\n0;1\\r\\n1;2\\r\\n2;0\\r\\n' > e.csv | $tail | --edges e.csv \
     | --edges NEW.csv",
    // As R writes a table.
    "NameFirstColumn(/row,/) | $printf 'src,dst\\n1,0,1\\n2,1,2\\n3,2,0\\n' > e.csv | $sed | --edges e.csv \
     | --edges NEW.csv --src src --dst dst",
    // What warnings say.
    "Transpose | np.save('e.npy', [[0, 1], [1, 0]]) | numpy | $grappa-ingest --edges e.npy | --edges NEW.npy \
     | 0>1&1>0",
    "OneHotToClasses | np.save('y.npy', [[0, 1], [1, 0]]) | numpy | $grappa-ingest --labels y.npy --edges e.txt \
     | --labels NEW.npy --edges e.txt | 0>1 |  | 1 0",
    "RemoveHeader | $printf 'node_id\\nn0\\nn1\\n' > i.csv && printf 'n0 n1\\n' > e.txt | $tail \
     | $grappa-ingest --node-ids i.csv --edges e.txt --ids string | --node-ids NEW.csv --edges e.txt --ids string \
     | n0>n1",
    // The pointer of a file that is fetched from nowhere: the command leaves it as it is.
    "FetchLfs | $printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:1\\nsize 9\\n' > e.csv && git init -q \
     | $git-lfs | --edges e.csv | --edges e.txt | 0>1",
    // A dataset as the saver of OGB writes it.
    "OgbSplitToText | import os, torch\nos.makedirs('d/raw'); os.makedirs('d/split/time')\n\
     open('d/raw/edge.csv', 'w').write('0,1\\n1,2\\n'); open('d/raw/num-node-list.csv', 'w').write('3\\n')\n\
     ids = {n: torch.tensor([i]) for i, n in enumerate(('train', 'valid', 'test'))}\n\
     torch.save(ids, 'd/split/time/split_dict.pt') | torch | $grappa-ingest --ogb d \
     | --edges d/raw/edge.csv --train d/split/time/train.csv | 0>1&1>2",
];

/// Files that descriptions of graphs name.
pub(super) const LAYOUTS: &[&str] = &[
    "ColumnToUnitRange(n) | import json\nopen('t.csv', 'w').write('id,n\\n0,5\\n1,7\\n')\n\
     json.dump({'nodes': [{'node_type': 'p', 'node_id_col': 'id', 'format': {'name': 'csv'}, 'files': 't.csv', \
     'features': [{'feature_col': 'n', 'transform': {'name': 'max_min_norm'}}]}], 'edges': []}, open('g.json', 'w')) | pandas pyarrow | $grappa-ingest --gconstruct g.json \
      | --features NEW.parquet --edges e.txt | 0>1 | 0 1",
    "ColumnToZScores(n) | import json\nopen('t.csv', 'w').write('id,n\\n0,5\\n1,7\\n')\n\
     json.dump({'nodes': [{'node_type': 'p', 'node_id_col': 'id', 'format': {'name': 'csv'}, 'files': 't.csv', \
     'features': [{'feature_col': 'n', 'transform': {'name': 'standard'}}]}], 'edges': []}, open('g.json', 'w')) | pandas pyarrow | $grappa-ingest --gconstruct g.json \
      | --features NEW.parquet --edges e.txt | 0>1 | -1 1",
    "ColumnToNormalRanks(n) | import json\nopen('t.csv', 'w').write('id,n\\n0,5\\n1,7\\n')\n\
     json.dump({'nodes': [{'node_type': 'p', 'node_id_col': 'id', 'format': {'name': 'csv'}, 'files': 't.csv', \
     'features': [{'feature_col': 'n', 'transform': {'name': 'rank_gauss'}}]}], 'edges': []}, open('g.json', 'w')) | pandas pyarrow | $grappa-ingest --gconstruct g.json \
      | --features NEW.parquet --edges e.txt | 0>1 | -0.67448974 0.67448974",
    "ColumnToText(n) | import json\nopen('t.csv', 'w').write('id,n\\n0,5\\n1,7\\n')\n\
     json.dump({'nodes': [{'node_type': 'p', 'node_id_col': 'id', 'format': {'name': 'csv'}, 'files': 't.csv', \
     'features': [{'feature_col': 'n', 'transform': {'name': 'to_categorical'}}]}], 'edges': []}, open('g.json', 'w')) | pandas pyarrow | $grappa-ingest --gconstruct g.json \
      | --features NEW.parquet --features-from n --edges e.txt | 0>1 | 1,0,0 0,1,0",
    "MergeText(u.csv) | import json\n[open(f, 'w').write('id,x\\n' + r) for f, r in [('t.csv', '0,5\\n'), ('u.csv', '1,7\\n')]]\n\
     json.dump({'nodes': [{'node_type': 'p', 'node_id_col': 'id', 'format': {'name': 'csv'}, 'files': ['t.csv', 'u.csv']}], \
     'edges': []}, open('g.json', 'w')) |  | $grappa-ingest --gconstruct g.json \
      | --features NEW.csv --edges e.txt | 0>1 | 5 7",
    "MergeParquet(u.parquet) | import json, pyarrow as pa, pyarrow.parquet as p\n[p.write_table(pa.table({'id': [i], 'x': [5. + i]}), f) \
     for i, f in enumerate(['t.parquet', 'u.parquet'])]\njson.dump({'nodes': [{'node_type': 'p', 'node_id_col': 'id', 'format': \
     {'name': 'parquet'}, 'files': ['t.parquet', 'u.parquet']}], 'edges': []}, open('other.json', 'w')) | pyarrow | $grappa-ingest --gconstruct other.json \
      | --features NEW.parquet --edges e.txt | 0>1 | 5 6",
    "PairsToArray | np.save('f.npy', np.ones((3, 1), 'f4'))\nopen('pairs.csv', 'w').write('0,1\\n1,2\\n2,0\\n')\n\
     open('m.yaml', 'w').write('graph: {nodes: [{type: p, num: 3}], edges: [{type: p:r:p, format: csv, path: pairs.csv}]}\\n' + \
     'feature_data: [{domain: edge, type: p:r:p, name: f, format: numpy, path: f.npy}]\\n') | numpy | $grappa-ingest --graphbolt m.yaml \
      | --edges NEW.npy",
];
