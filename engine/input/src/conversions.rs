//! Commands that convert files which are not read, for error messages.
//!
//! All of them are here, so that a test can run each: `tests/tests/programs/remedies.rs` fails for a command that it does not
//! run. A command is one line for a shell. It reads the file that is named at its end, and writes to NEW, with an extension, or
//! to several files whose names begin with NEW.

use std::path::Path;

use crate::messages::in_shell;

/// Declares the commands, each with itself as its docs, and the list of all of them. `FILE` is replaced by the file.
macro_rules! conversions {
    ($($(#[$doc:meta])* $name:ident: $command:expr;)*) => {
        /// A command that converts a file, or a line that must be removed from it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Conversion {
            $(
                $(#[$doc])*
                #[doc = concat!("`", $command, "`")]
                $name,
            )*
        }

        impl Conversion {
            /// All commands.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The command, for `FILE`.
            pub const fn template(self) -> &'static str {
                match self {
                    $(Self::$name => $command,)*
                }
            }
        }
    };
}

impl Conversion {
    /// The command for a file. The new file keeps the extension, without the extension of a packed file.
    pub fn command(self, file: &Path) -> String {
        let name = file.to_string_lossy().to_ascii_lowercase();
        let packed = [".bz2", ".gz", ".lz4", ".xz", ".zst", ".z", ".lzma"];
        let name = packed.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
        let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
        let extension = extension.filter(|extension| extension.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        let new = extension.map_or_else(|| "NEW".to_owned(), |extension| format!("NEW.{extension}"));
        let template = self.template().replace("NEW.EXTENSION", &new);
        template.replace("FILE", &in_shell(&file.display().to_string()))
    }

    /// The command for several files, for conversions that merge them.
    pub fn command_for_all(self, files: &[&Path]) -> String {
        let others = files[1..].iter().map(|file| format!(" {}", in_shell(&file.display().to_string())));
        self.command(files[0]) + &others.collect::<String>()
    }

    /// An expression of Python that converts data in memory, which has this name.
    pub fn expression(self, name: &Path) -> String {
        let name = name.display();
        match self {
            Self::ParquetToIntegers => format!("give {name} with the type int64 in the column COLUMN"),
            Self::ParquetToStrings => format!("give {name} with the type string in the column COLUMN"),
            Self::ParquetToFloats => format!("give {name} with the type double in the column COLUMN"),
            Self::ParquetLists => format!("{name}={name}.explode('COLUMN')"),
            Self::ParquetStructs => format!("{name}={name}.flatten()"),
            Self::RecordsToText => format!("{name}=pandas.DataFrame({name})"),
            Self::SparseToCsr => format!("{name}={name}.tocsr()"),
            Self::BipartiteNpz => format!(
                "{name}=scipy.sparse.bmat([[None, {name}], [scipy.sparse.coo_matrix({name}.shape[::-1]), None]])"
            ),
            _ => self.of_array(&name.to_string()).unwrap_or_else(|| format!("give {name} in another form")),
        }
    }

    /// The steps of a command on an array, with arguments in the place of files: `edges=edges.T`.
    fn of_array(self, name: &str) -> Option<String> {
        let (_, steps) = self.template().split_once("a = np.load(sys.argv[1]); ")?;
        let steps = steps.strip_suffix("\" FILE")?.split("; ");
        let (mut first, mut arguments) = (String::new(), Vec::new());
        for step in steps {
            match step.strip_prefix("np.save('NEW").and_then(|step| step.strip_suffix(')')) {
                None => first += &format!("{}; ", rename(step, name)),
                Some(saved) => {
                    let (file, value) = saved.split_once(".npy', ")?;
                    arguments.push(format!("{}={}", file.strip_prefix('-').unwrap_or(name), rename(value, name)));
                }
            }
        }
        Some(first + &arguments.join(", "))
    }

    /// The command for a file, with `name` in the place of `NAME` or `COLUMN`, unless its letters mean something to a shell or to
    /// Python. Then the user must write it.
    pub fn command_for(self, file: &Path, name: &str) -> String {
        let command = self.command(file);
        match name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" _-.:()/".contains(&byte) || byte >= 0x80) {
            // The file comes last, and its name may have the same letters.
            true => command.replacen("'NAME'", &format!("'{name}'"), 1).replace("'COLUMN'", &format!("'{name}'")),
            false => command,
        }
    }
}

/// A line of Python with `name` in the place of the variable `a`.
fn rename(line: &str, name: &str) -> String {
    let is_word = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || "_'".contains(letter));
    let mut out = String::new();
    for (at, letter) in line.char_indices() {
        let is_name =
            letter == 'a' && !is_word(line[..at].chars().next_back()) && !is_word(line[at + 1..].chars().next());
        if is_name { out += name } else { out.push(letter) }
    }
    out
}

/// A line of Python that has `a`, the array in the file.
macro_rules! numpy {
    ($rest:expr) => {
        concat!("python3 -c \"import numpy as np, sys; a = np.load(sys.argv[1]); ", $rest, "\" FILE")
    };
}

/// A line of Python that writes the edges of a graph that NetworkX reads. An edge without direction is two edges.
macro_rules! networkx {
    ($read:expr) => {
        concat!(
            "python3 -c \"import networkx as nx, sys; nx.write_edgelist(",
            $read,
            ".to_directed(), 'NEW', delimiter='\\t', data=False)\" FILE"
        )
    };
}

/// A line of Python that has `c`, a column of a table of text or Parquet, and replaces its values.
macro_rules! column {
    ($values:expr) => {
        concat!(
            "python3 -c \"import pandas as pd, statistics, sys; f = sys.argv[1]; \
             t = pd.read_csv(f, sep=None, engine='python') if f.endswith('.csv') else pd.read_parquet(f); c = t['COLUMN']; t['COLUMN'] = ",
            $values,
            "; t.to_parquet('NEW.parquet')\" FILE"
        )
    };
}

conversions! {
    /// Real and imaginary parts as numbers of their own.
    ComplexArray: numpy!("np.save('NEW.npy', a.view(a.real.dtype))");
    TimeArray: numpy!("np.save('NEW.npy', a.astype('i8'))");
    /// bfloat16, which NumPy writes as two bytes of no type.
    Bfloat16Array: numpy!("np.save('NEW.npy', (a.view('u2').astype('u4') << 16).view('f4'))");
    WideArray: numpy!("np.save('NEW.npy', a.astype(float))");
    /// Python objects or strings as text. Two rows are sources and targets.
    ArrayToText: "python3 -c \"import csv, numpy as np, sys; a = np.load(sys.argv[1], allow_pickle=True); \
        a = a.astype(str) if a.dtype.kind == 'S' else a; a = a.T if a.ndim == 2 and len(a) == 2 < a.shape[1] else a; \
        csv.writer(open('NEW.csv', 'w')).writerows(a.reshape(len(a), -1).tolist())\" FILE";
    RecordsToText: "python3 -c \"import csv, numpy as np, sys; a = np.load(sys.argv[1], allow_pickle=True); \
        csv.writer(open('NEW.csv', 'w')).writerows([a.dtype.names, *a.tolist()])\" FILE";
    /// A packed array of columns.
    ColumnsToRows: "python3 -c \"import numpy as np, sys; a = np.load(sys.argv[1]); \
        np.savez_compressed('NEW.npz', **{n: np.ascontiguousarray(a[n]) for n in a})\" FILE";
    NamedArray: numpy!("np.save('NEW.npy', a['NAME'])");
    /// An array of three axes as one of rows.
    FlattenRows: numpy!("np.save('NEW.npy', a.reshape(len(a), -1))");
    /// A matrix of zeros and ones as edges.
    DenseAdjacency: numpy!("np.save('NEW.npy', np.argwhere(a))");
    SplitWeights: numpy!(
        "a = a if a.shape[1] == 3 else a.T; np.save('NEW.npy', a[:, :2]); np.save('NEW-weights.npy', a[:, 2])"
    );
    /// Sources in the first row and targets in the second one.
    Transpose: numpy!("np.save('NEW.npy', np.ascontiguousarray(a.T))");
    /// Ids as integers of one axis.
    RavelIntegers: numpy!("np.save('NEW.npy', a.astype('i8').ravel())");
    FirstMask: numpy!("np.save('NEW.npy', a[:, 0])");
    SparseToCsr: "python3 -c \"import scipy.sparse as sp, sys; sp.save_npz('NEW.npz', sp.load_npz(sys.argv[1]).tocsr())\" FILE";
    /// A matrix between two kinds of nodes: columns are numbered after rows.
    BipartiteNpz: "python3 -c \"import scipy.sparse as sp, sys; a = sp.load_npz(sys.argv[1]); \
        sp.save_npz('NEW.npz', sp.bmat([[None, a], [sp.coo_matrix(a.shape[::-1]), None]]).tocsr())\" FILE";
    /// The same in the format of Matrix Market.
    BipartiteMtx: "python3 -c \"import scipy.io as io, scipy.sparse as sp, sys; a = sp.coo_matrix(io.mmread(sys.argv[1])); \
        io.mmwrite('NEW.mtx', sp.bmat([[None, a], [sp.coo_matrix(a.shape[::-1]), None]]))\" FILE";
    ParquetToIntegers: "python3 -c \"import pyarrow.parquet as p, sys; t = p.read_table(sys.argv[1]); \
        i = t.column_names.index('COLUMN'); p.write_table(t.set_column(i, 'COLUMN', t[i].cast('int64')), 'NEW.parquet')\" FILE";
    ParquetToStrings: "python3 -c \"import pyarrow.parquet as p, sys; t = p.read_table(sys.argv[1]); \
        i = t.column_names.index('COLUMN'); p.write_table(t.set_column(i, 'COLUMN', t[i].cast('string')), 'NEW.parquet')\" FILE";
    RecompressParquet: "python3 -c \"import pyarrow.parquet as p, sys; \
        p.write_table(p.read_table(sys.argv[1]), 'NEW.parquet', compression='zstd')\" FILE";
    /// A matrix of Matrix Market in another form.
    GeneralMtx: "python3 -c \"import scipy.io as io, scipy.sparse as sp, sys; \
        io.mmwrite('NEW.mtx', sp.coo_matrix(io.mmread(sys.argv[1])).real, symmetry='general')\" FILE";
    UnpackBzip2: "bzip2 -dc FILE > NEW.EXTENSION";
    UnpackGzip: "gzip -dc FILE > NEW.EXTENSION";
    UnpackLz4: "lz4 -dc FILE > NEW.EXTENSION";
    UnpackXz: "xz -dc FILE > NEW.EXTENSION";
    UnpackZstd: "zstd -dc FILE > NEW.EXTENSION";
    /// Files of an archive, in the folder NEW.
    UnpackTar: "mkdir NEW && tar -xf FILE -C NEW";
    /// Files of an archive, in the folder NEW.
    UnpackZip: "python3 -m zipfile -e FILE NEW";
    FetchLfs: "git -C $(dirname FILE) lfs pull";
    AvroToParquet: "python3 -c \"import fastavro, pandas as pd, sys; \
        pd.DataFrame(list(fastavro.reader(open(sys.argv[1], 'rb')))).to_parquet('NEW.parquet')\" FILE";
    FeatherToParquet: "python3 -c \"import pyarrow.feather as f, pyarrow.parquet as p, sys; \
        p.write_table(f.read_table(sys.argv[1]), 'NEW.parquet')\" FILE";
    OrcToParquet: "python3 -c \"import pyarrow.orc as o, pyarrow.parquet as p, sys; \
        p.write_table(o.read_table(sys.argv[1]), 'NEW.parquet')\" FILE";
    /// The first sheet.
    ExcelToText: "python3 -c \"import pandas as pd, sys; pd.read_excel(sys.argv[1]).to_csv('NEW.csv', index=False)\" FILE";
    SqliteToText: "python3 -c \"import csv, sqlite3, sys; db = sqlite3.connect(sys.argv[1]); \
        [csv.writer(open('NEW-' + t + '.csv', 'w')).writerows([[c[0] for c in q.description], *q]) \
        for t, in list(db.execute('select name from sqlite_master where type = ?', ['table'])) \
        for q in [db.execute('select * from [' + t + ']')]]\" FILE";
    Hdf5ToArrays: "python3 -c \"import h5py, numpy as np, sys; h5py.File(sys.argv[1]).visititems(lambda n, d: \
        np.save('NEW-' + n.replace('/', '-') + '.npy', d[()]) if hasattr(d, 'shape') else None)\" FILE";
    /// A file for each array. MATLAB writes columns first.
    Matlab73ToArrays: "python3 -c \"import h5py, numpy as np, sys; h5py.File(sys.argv[1]).visititems(lambda n, d: \
        np.save('NEW-' + n.replace('/', '-') + '.npy', d[()].T) if hasattr(d, 'shape') else None)\" FILE";
    /// A file for each array, or sparse matrix.
    MatlabToArrays: "python3 -c \"import numpy as np, scipy.io as io, scipy.sparse as sp, sys; \
        [sp.save_npz('NEW-' + n, a.tocsr()) if sp.issparse(a) else np.save('NEW-' + n, a) \
        for n, a in io.loadmat(sys.argv[1]).items() if n[0] != '_']\" FILE";
    /// Rows of a table or an array, or edges of a graph.
    PickleToText: "python3 -c \"import csv, numpy as np, pickle, sys; o = pickle.load(open(sys.argv[1], 'rb')); \
        csv.writer(open('NEW.csv', 'w')).writerows([o.columns, *o.itertuples(index=False)] if hasattr(o, 'itertuples') \
        else o.edges() if hasattr(o, 'edges') else zip(*o.nonzero()) if hasattr(o, 'tocoo') \
        else [(u, v) for u in o for v in o[u]] if isinstance(o, dict) else np.reshape(o, (len(o), -1)).tolist())\" FILE";
    PyTorchToArrays: "python3 -c \"import numpy as np, sys, torch; \
        d = torch.load(sys.argv[1], map_location='cpu', weights_only=False); d = d[0] if isinstance(d, (list, tuple)) else d; \
        d = d if isinstance(d, dict) else d.to_dict() if hasattr(d, 'to_dict') else {'tensor': d}; \
        [np.save('NEW-' + k, (v.t() if k == 'edge_index' else v).detach().numpy()) for k, v in d.items() \
        if torch.is_tensor(v) and v.layout == torch.strided]\" FILE";
    /// Edges, and a file for the data of nodes of each name.
    DglToArrays: "python3 -c \"import dgl, numpy as np, sys; g = dgl.load_graphs(sys.argv[1])[0][0]; \
        np.save('NEW-edges', np.stack([end.numpy() for end in g.edges()], 1)); \
        [np.save('NEW-' + k, v.numpy()) for k, v in g.ndata.items()]\" FILE";
    /// The split of a dataset of OGB, in the folder of the file.
    OgbSplitToText: "python3 -c \"import os, sys, torch; \
        [open(os.path.join(os.path.dirname(sys.argv[1]), n + '.csv'), 'w').writelines(f'{int(i)}\\n' for i in ids) \
        for n, ids in torch.load(sys.argv[1], weights_only=False).items()]\" FILE";
    /// A graph of NetworkX's formats. Edges without direction go both ways.
    GraphMlToEdges: networkx!("nx.read_graphml(sys.argv[1])");
    GexfToEdges: networkx!("nx.read_gexf(sys.argv[1])");
    GmlToEdges: networkx!("nx.read_gml(sys.argv[1], label=None)");
    PajekToEdges: networkx!("nx.read_pajek(sys.argv[1])");
    DotToEdges: networkx!("nx.nx_pydot.read_dot(sys.argv[1])");
    /// Edges of DIMACS, which count from 1.
    DimacsToEdges: "awk '$1 == \"a\" || $1 == \"e\" {print $2 - 1, $3 - 1}' FILE > NEW";
    /// Triples whose object is a node.
    NTriplesToEdges: "awk '$3 ~ /^</ {print $1 \"\\t\" $3}' FILE > NEW";
    /// Lists of neighbors of METIS, which count from 1.
    MetisToEdges: "grep -v '^%' FILE | awk 'NR > 1 {for (i = 1; i <= NF; i++) print NR - 2, $i - 1}' > NEW";
    /// A node and its neighbors in each line.
    ListsToEdges: "awk SPLIT'{for (i = 2; i <= NF; i++) if ($i != \"\") print $1 \"\\t\" $i}' FILE > NEW";
    /// A list of edges, of objects, or the links of a graph.
    JsonToText: "python3 -c \"import csv, json, sys; d = json.load(open(sys.argv[1])); \
        d = d.get('links', d.get('edges', d)) if isinstance(d, dict) else d; \
        d = [(u, v) for u in d for v in d[u]] if isinstance(d, dict) else d; \
        csv.writer(open('NEW.csv', 'w')).writerows([list(d[0]), *[r.values() for r in d]] if isinstance(d[0], dict) else d)\" FILE";
    JsonLinesToText: "python3 -c \"import csv, json, sys; d = [json.loads(line) for line in open(sys.argv[1])]; \
        csv.writer(open('NEW.csv', 'w')).writerows([list(d[0]), *[r.values() for r in d]])\" FILE";
    Utf16ToUtf8: "iconv -f utf-16 -t utf-8 FILE > NEW.EXTENSION";
    Latin1ToUtf8: "iconv -f latin1 -t utf-8 FILE > NEW.EXTENSION";
    MacLineEnds: "tr '\\r' '\\n' < FILE > NEW.EXTENSION";
    DecimalCommas: "tr , . < FILE > NEW";
    RemoveComments: "grep -v '^[#%]' FILE > NEW.EXTENSION";
    RemoveHeader: "tail -n +2 FILE > NEW.EXTENSION";
    /// The class of each row of zeros and ones.
    OneHotToClasses: numpy!("np.save('NEW.npy', a.argmax(axis=1))");
    IntegersToMask: numpy!("np.save('NEW.npy', a.astype(bool))");
    /// Fields whose line breaks and quotes are not read.
    PlainFields: "python3 -c \"import csv, sys; csv.writer(open('NEW.csv', 'w')).writerows([f.replace('\\n', ' ') for f in r] \
        for r in csv.reader(open(sys.argv[1], newline=''), escapechar=chr(92)))\" FILE";
    /// Turns blanks, digits and line ends of Unicode into ASCII, and leaves out invisible characters.
    PlainText: "python3 -c \"import sys, unicodedata as u; open('NEW', 'w').writelines(''.join(c for c in u.normalize('NFKC', l) \
        if c.isprintable() or c == '\\t') + '\\n' for l in open(sys.argv[1], encoding='utf-8-sig').read().splitlines())\" FILE";
    /// Bytes that end strings in C.
    RemoveNuls: "tr -d '\\000' < FILE > NEW.EXTENSION";
    /// Integers without arrows, brackets and colons.
    DigitsOnly: "tr -c '0-9.\\n' ' ' < FILE > NEW";
    TrimEnds: "sed 's/[,;|]*$//' FILE > NEW.EXTENSION";
    /// A header whose first column has no name, as R writes it.
    NameFirstColumn: "sed '1s/^[[:blank:]]*/row/' FILE > NEW.EXTENSION";
    ListToText: "python3 -c \"import ast, csv, sys; \
        csv.writer(open('NEW.csv', 'w')).writerows(ast.literal_eval(open(sys.argv[1]).read()))\" FILE";
    /// A row for each element of a list.
    ParquetLists: "python3 -c \"import pandas as pd, sys; pd.read_parquet(sys.argv[1]).explode('COLUMN').to_parquet('NEW.parquet')\" FILE";
    /// A column for each member of a struct.
    ParquetStructs: "python3 -c \"import pyarrow.parquet as p, sys; \
        p.write_table(p.read_table(sys.argv[1]).flatten(), 'NEW.parquet')\" FILE";
    ColumnToUnitRange: column!("(c - c.min()) / (c.max() - c.min())");
    ColumnToZScores: column!("(c - c.mean()) / c.std(ddof=0)");
    ColumnToNormalRanks: column!("(c.rank() - 0.5).map(lambda r: statistics.NormalDist().inv_cdf(r / len(c)))");
    /// Numbers as text, which becomes categories.
    ColumnToText: column!("'c' + c.astype(str)");
    /// Files with one header as one, in Parquet.
    MergeParquet: "python3 -c \"import pyarrow as pa, pyarrow.parquet as p, sys; \
        p.write_table(pa.concat_tables(map(p.read_table, sys.argv[1:])), 'NEW.parquet')\" FILE";
    /// Files with one header as one, in CSV.
    MergeText: "python3 -c \"import csv, sys; t = [list(csv.reader(open(f))) for f in sys.argv[1:]]; \
        csv.writer(open('NEW.csv', 'w')).writerows(t[0] + [r for u in t[1:] for r in u[1:]])\" FILE";
    /// Pairs in CSV as an array of sources and destinations.
    PairsToArray: "python3 -c \"import numpy as np, sys; \
        np.save('NEW.npy', np.loadtxt(sys.argv[1], delimiter=',', dtype=int, ndmin=2).T)\" FILE";
    ParquetToFloats: "python3 -c \"import pyarrow.parquet as p, sys; t = p.read_table(sys.argv[1]); \
        i = t.column_names.index('COLUMN'); p.write_table(t.set_column(i, 'COLUMN', t[i].cast('double')), 'NEW.parquet')\" FILE";
}
