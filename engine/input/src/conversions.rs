//! Commands that convert files which are not read, for error messages.
//!
//! All of them are here, so that a test can run each: `tests/tests/programs/remedies.rs` fails for a command that it does not
//! run. A command is one line for a shell. It reads the file that is named at its end, and writes to NEW, with an extension, or
//! to several files whose names begin with NEW.

use std::path::Path;

use crate::messages::in_shell;

/// Declares the commands and the list of all of them. `FILE` is replaced by the file.
macro_rules! conversions {
    ($($(#[$doc:meta])* $name:ident: $command:expr;)*) => {
        /// A command that converts a file, or a line that must be removed from it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Conversion {
            $($(#[$doc])* $name,)*
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
    /// The command for a file.
    pub fn command(self, file: &Path) -> String {
        self.template().replace("FILE", &in_shell(&file.display().to_string()))
    }

    /// The command for a file, with `name` in the place of `NAME` or `COLUMN`, unless its letters mean something to a shell or to
    /// Python. Then the user must write it.
    pub fn command_for(self, file: &Path, name: &str) -> String {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b" _-.:()/".contains(&byte) || byte >= 0x80;
        let template = self.template();
        let template = match name.bytes().all(is_plain) {
            true => template.replace("NAME", name).replace("COLUMN", name),
            false => template.to_owned(),
        };
        template.replace("FILE", &in_shell(&file.display().to_string()))
    }
}

/// A line of Python that has `a`, the array in the file.
macro_rules! numpy {
    ($rest:expr) => {
        concat!(
            "python3 -c \"import numpy as np, sys; a = np.load(sys.argv[1]); ",
            $rest,
            "\" FILE"
        )
    };
}

conversions! {
    /// Real and imaginary parts as numbers of their own.
    ComplexArray: numpy!("np.save('NEW.npy', a.view(a.real.dtype))");
    /// Times as integers.
    TimeArray: numpy!("np.save('NEW.npy', a.astype('i8'))");
    /// bfloat16, which NumPy writes as two bytes of no type.
    Bfloat16Array: numpy!("np.save('NEW.npy', (a.view('u2').astype('u4') << 16).view('f4'))");
    /// Numbers of another size.
    WideArray: numpy!("np.save('NEW.npy', a.astype(float))");
    /// Python objects or strings as text. Two rows are sources and targets.
    ArrayToText: "python3 -c \"import csv, numpy as np, sys; a = np.load(sys.argv[1], allow_pickle=True); \
        a = a.astype(str) if a.dtype.kind == 'S' else a; a = a.T if a.ndim == 2 and len(a) == 2 < a.shape[1] else a; \
        csv.writer(open('NEW.csv', 'w')).writerows(a.reshape(len(a), -1).tolist())\" FILE";
    /// Named fields as columns.
    RecordsToText: "python3 -c \"import csv, numpy as np, sys; a = np.load(sys.argv[1], allow_pickle=True); \
        csv.writer(open('NEW.csv', 'w')).writerows([a.dtype.names, *a.tolist()])\" FILE";
    /// A packed array of columns.
    ColumnsToRows: "python3 -c \"import numpy as np, sys; a = np.load(sys.argv[1]); \
        np.savez_compressed('NEW.npz', **{n: np.ascontiguousarray(a[n]) for n in a})\" FILE";
    /// An array of an archive.
    NamedArray: numpy!("np.save('NEW.npy', a['NAME'])");
    /// An array of three axes as one of rows.
    FlattenRows: numpy!("np.save('NEW.npy', a.reshape(len(a), -1))");
    /// A matrix of zeros and ones as edges.
    DenseAdjacency: numpy!("np.save('NEW.npy', np.argwhere(a))");
    /// Edges of three columns as edges and weights.
    SplitWeights: numpy!(
        "a = a if a.shape[1] == 3 else a.T; np.save('NEW.npy', a[:, :2]); np.save('NEW-weights.npy', a[:, 2])"
    );
    /// Sources in the first row and targets in the second one.
    Transpose: numpy!("np.save('NEW.npy', np.ascontiguousarray(a.T))");
    /// Ids as integers of one axis.
    RavelIntegers: numpy!("np.save('NEW.npy', a.astype('i8').ravel())");
    /// The first of several masks.
    FirstMask: numpy!("np.save('NEW.npy', a[:, 0])");
    /// A sparse matrix of any format in compressed rows.
    SparseToCsr: "python3 -c \"import scipy.sparse as sp, sys; sp.save_npz('NEW.npz', sp.load_npz(sys.argv[1]).tocsr())\" FILE";
    /// A matrix between two kinds of nodes: columns are numbered after rows.
    BipartiteNpz: "python3 -c \"import scipy.sparse as sp, sys; a = sp.load_npz(sys.argv[1]); \
        sp.save_npz('NEW.npz', sp.bmat([[None, a], [sp.coo_matrix(a.shape[::-1]), None]]).tocsr())\" FILE";
    /// The same in the format of Matrix Market.
    BipartiteMtx: "python3 -c \"import scipy.io as io, scipy.sparse as sp, sys; a = sp.coo_matrix(io.mmread(sys.argv[1])); \
        io.mmwrite('NEW.mtx', sp.bmat([[None, a], [sp.coo_matrix(a.shape[::-1]), None]]))\" FILE";
    /// A column of another type as integers.
    ParquetToIntegers: "python3 -c \"import pyarrow.parquet as p, sys; t = p.read_table(sys.argv[1]); \
        i = t.column_names.index('COLUMN'); p.write_table(t.set_column(i, 'COLUMN', t[i].cast('int64')), 'NEW.parquet')\" FILE";
    /// A column of another type as strings.
    ParquetToStrings: "python3 -c \"import pyarrow.parquet as p, sys; t = p.read_table(sys.argv[1]); \
        i = t.column_names.index('COLUMN'); p.write_table(t.set_column(i, 'COLUMN', t[i].cast('string')), 'NEW.parquet')\" FILE";
    /// A table with a compression that is not read.
    RecompressParquet: "python3 -c \"import pyarrow.parquet as p, sys; \
        p.write_table(p.read_table(sys.argv[1]), 'NEW.parquet', compression='zstd')\" FILE";
    /// A matrix of Matrix Market in another form.
    GeneralMtx: "python3 -c \"import scipy.io as io, scipy.sparse as sp, sys; \
        io.mmwrite('NEW.mtx', sp.coo_matrix(io.mmread(sys.argv[1])).real, symmetry='general')\" FILE";
}
