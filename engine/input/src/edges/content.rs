//! The content of one edge file, by format.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use grappa_formats::features::ElementType;
use grappa_io::{Error, Position, Result};

use super::{
    EdgeFormat, EdgeSourceOptions, column_file::ColumnFile, layout::TextLayout, packed_text::TextStream, table::Table,
    text::TextFile,
};
use crate::{
    columnar::ColumnTable,
    conversions::Conversion,
    extent::Compression,
    file::InputFile,
    input::{MemoryData, MemoryInput},
    kinds::{self, refuse_other_kinds},
    npy::NpyArray,
    reading::Reading,
    sparse::SparseArrays,
    zip::Npz,
};

pub(super) enum Content {
    Nothing,
    Text(TextFile),
    PackedText {
        layout: TextLayout,
        compression: Compression,
        /// Opened by the first worker that needs a block, closed at its end.
        stream: Mutex<Option<TextStream>>,
    },
    Table(Box<Table>),
    Columns(ColumnFile),
}

impl Content {
    /// Detects the format of `file` and opens it.
    pub fn open(file: &Arc<InputFile>, options: &EdgeSourceOptions) -> Result<Self> {
        let head = file.head(64 << 10)?;
        // Raw integers may begin as anything.
        let named = match options.format {
            EdgeFormat::Auto => named_format(file.path()),
            format => Some(format),
        };
        if !matches!(named, Some(EdgeFormat::U32 | EdgeFormat::U64)) {
            refuse_other_kinds(file)?;
        }
        let compression = Compression::from_head(&head);
        let format = match options.format {
            EdgeFormat::Auto => format_of(file.path(), &head, compression)?,
            format => format,
        };
        // Arrays and tables without edges have a header. Text and raw integers have no bytes.
        if head.is_empty() && !matches!(format, EdgeFormat::Npy | EdgeFormat::Parquet) {
            return Ok(Self::Nothing);
        }
        if matches!(format, EdgeFormat::Tsv | EdgeFormat::Csv) {
            if options.columns.row_end.is_some() {
                return Err(file.error("the rows of a table in text are no nodes without ids; name a column of ids, or write it as Parquet"));
            }
            let Some(layout) = TextLayout::sniff(file, compression, format == EdgeFormat::Csv, options)? else {
                return Ok(Self::Nothing);
            };
            return Ok(match compression {
                Compression::None => Self::Text(TextFile::new(file.clone(), layout, options.block_bytes)),
                _ => Self::PackedText { layout, compression, stream: Mutex::new(None) },
            });
        }
        let has_magic = [kinds::NPY, kinds::ZIP, kinds::PARQUET].iter().any(|magic| head.starts_with(magic));
        if options.format == EdgeFormat::Auto
            && matches!(format, EdgeFormat::Npy | EdgeFormat::Parquet)
            && !has_magic
            && !head.is_empty()
            && compression == Compression::None
            && head.iter().all(|&byte| byte >= b'\t')
        {
            return Err(
                file.error("this file is called .npy or .parquet, but it is text: give --format tsv, or rename it")
            );
        }
        if options.separator.is_some() {
            return Err(file.error("--separator is for text, and this file is none; omit it"));
        }
        // Raw pairs may start with the magic bytes of a compression by chance, so for them the name decides too.
        let raw = matches!(format, EdgeFormat::U32 | EdgeFormat::U64);
        if compression != Compression::None && (!raw || names_compression(file.path())) {
            let unpack = match compression {
                Compression::Zstd => Conversion::UnpackZstd,
                _ => Conversion::UnpackGzip,
            };
            return Err(file.error(format!(
                "a compressed binary file cannot be read from several places at once; unpack it first: {}",
                unpack.command(file.path())
            )));
        }
        if format == EdgeFormat::Parquet {
            return Self::of_columns(ColumnTable::open(file)?, options);
        }
        if has_columns(options) {
            return Err(file.error(NO_COLUMNS));
        }
        let table = match format {
            EdgeFormat::Npy if head.starts_with(kinds::ZIP) => Self::archive(&Npz::open(file)?, options)?,
            EdgeFormat::Npy => Table::npy(NpyArray::open(file)?, false)?,
            EdgeFormat::U32 => Table::raw(file, ElementType::U32)?,
            EdgeFormat::U64 => Table::raw(file, ElementType::U64)?,
            EdgeFormat::Auto | EdgeFormat::Tsv | EdgeFormat::Csv | EdgeFormat::Parquet => {
                unreachable!("decided above")
            }
        };
        Self::of_integers(table, file.path(), options)
    }

    /// The edges of data in memory.
    pub fn in_memory(input: &MemoryInput, options: &EdgeSourceOptions) -> Result<Self> {
        let refused = |problem: &str| Err(Error::input(&input.name, Position::Whole, problem));
        if options.separator.is_some() {
            return refused("--separator is for text; omit it");
        }
        if let Some(table) = ColumnTable::of_memory(input)? {
            return Self::of_columns(table, options);
        }
        let table = match &input.data {
            _ if has_columns(options) => return refused(NO_COLUMNS),
            MemoryData::Array(array) => Table::npy(NpyArray::in_memory(&input.name, array)?, array.is_edge_index)?,
            MemoryData::Matrix(matrix) => {
                Table::entries(SparseArrays::in_memory(&input.name, matrix)?, options.columns.weight.is_none())?
            }
            MemoryData::Table(..) | MemoryData::Parquet(_) => unreachable!("these are tables"),
        };
        Self::of_integers(table, &input.name, options)
    }

    /// The edges of a table.
    fn of_columns(table: ColumnTable, options: &EdgeSourceOptions) -> Result<Self> {
        let columns = ColumnFile::new(table, options)?;
        Ok(if columns.rows() == 0 { Self::Nothing } else { Self::Columns(columns) })
    }

    /// The edges of an array, whose ids are integers.
    fn of_integers(table: Table, name: &Path, options: &EdgeSourceOptions) -> Result<Self> {
        // An array of strings was refused before, as one that is not read.
        if options.are_strings() {
            let problem = "the ids in this file are integers; omit --ids string (--ids sparse takes any integers)";
            return Err(Error::input(name, Position::Whole, problem));
        }
        Ok(if table.rows == 0 { Self::Nothing } else { Self::Table(Box::new(table)) })
    }

    /// The edges in an archive: an array, or else the entries of a sparse matrix.
    fn archive(archive: &Npz, options: &EdgeSourceOptions) -> Result<Table> {
        const NAMES: [&str; 3] = ["edge_index", "edges", "edge_list"];
        let has_edges = NAMES.iter().any(|name| archive.contains(name));
        if !has_edges && let Some(matrix) = SparseArrays::find(archive, "adj_")? {
            return Table::entries(matrix, options.columns.weight.is_none());
        }
        let is_edge_index = archive.contains("edge_index");
        Table::npy(archive.first_of(&NAMES, "edges")?, is_edge_index)
    }

    pub fn layout(&self) -> Option<&TextLayout> {
        match self {
            Self::Text(text) => Some(&text.layout),
            Self::PackedText { layout, .. } => Some(layout),
            Self::Nothing | Self::Table(_) | Self::Columns(_) => None,
        }
    }

    /// Whether edges may have times: the file has columns.
    pub fn may_have_times(&self) -> bool {
        match self {
            Self::Table(_) => false,
            Self::Nothing | Self::Columns(_) => true,
            Self::Text(_) | Self::PackedText { .. } => self.layout().is_some_and(|layout| layout.matrix.is_none()),
        }
    }

    /// How the file is read. None if it has no edges. `weighted`: edges have weights, in the file or in another one.
    pub fn reading(&self, weighted: bool) -> Option<Reading> {
        if let Self::Columns(file) = self {
            return Some(Reading {
                content: "edges",
                format: file.format(),
                columns: file.columns.roles.clone(),
                left_out: file.columns.left_out.clone(),
                ..Reading::default()
            });
        }
        let Some(layout) = self.layout() else {
            let Self::Table(table) = self else { return None };
            return Some(Reading {
                content: "edges",
                format: match (table.nodes.is_some(), table.has_values) {
                    (true, true) => "sparse matrix, an edge from each row to its columns, values are weights",
                    (true, false) => "sparse matrix, an edge from each row to its columns",
                    (false, _) if weighted => "binary, with weights in another file",
                    (false, _) => "binary",
                },
                ..Reading::default()
            });
        };
        let numbers: Vec<String> = (1..=layout.form.width).map(|number| number.to_string()).collect();
        let names: Vec<&str> = layout.header.as_ref().unwrap_or(&numbers).iter().map(String::as_str).collect();
        let columns = &layout.form.columns;
        Some(Reading {
            content: "edges",
            format: match layout.matrix {
                None => "text",
                Some(matrix) if matrix.symmetric => "symmetric Matrix Market",
                Some(_) => "Matrix Market",
            },
            separator: layout.matrix.is_none().then_some(layout.form.separator),
            header: layout.header.is_some(),
            comments: layout.comments,
            columns: columns.roles(&names),
            left_out: columns.left_out(&names).into_iter().map(str::to_owned).collect(),
            ..Reading::default()
        })
    }

    /// Whether all first values of the columns of features are numbers, or their types say so.
    pub fn has_numeric_features(&self) -> bool {
        match self {
            Self::Columns(file) => file.columns.encoder.is_none(),
            _ => self.layout().is_none_or(|layout| layout.form.encoder.is_none()),
        }
    }

    /// The position of a line of text, or of a row.
    pub fn position(&self, number: u64) -> Position {
        if self.layout().is_some() { Position::Line(number) } else { Position::Row(number) }
    }

    pub fn weighted(&self) -> bool {
        match self {
            Self::Table(table) => table.has_values,
            Self::Columns(file) => file.columns.weighted,
            _ => self.layout().is_some_and(|layout| layout.form.weighted()),
        }
    }

    /// The names of the columns of edge features, if columns have names.
    pub fn feature_names(&self) -> Vec<String> {
        let roles = match (self, self.layout()) {
            (Self::Columns(file), _) => file.columns.roles.clone(),
            (_, Some(TextLayout { header: Some(names), form, .. })) => {
                form.columns.roles(&names.iter().map(String::as_str).collect::<Vec<_>>())
            }
            _ => Vec::new(),
        };
        roles.into_iter().filter(|&(role, _)| role == "feature").map(|(_, name)| name).collect()
    }

    pub fn stated_nodes(&self) -> Option<u64> {
        match self {
            Self::Table(table) => table.nodes,
            _ => Some(self.layout()?.matrix?.nodes),
        }
    }

    /// The number of edges. None for text.
    pub fn rows(&self) -> Option<u64> {
        match self {
            Self::Nothing => Some(0),
            Self::Text(_) | Self::PackedText { .. } => None,
            Self::Table(table) => Some(table.rows),
            Self::Columns(file) => Some(file.rows()),
        }
    }

    /// The number of blocks, which is not known for packed text.
    pub fn blocks(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Text(text) => text.blocks(),
            Self::PackedText { .. } => unreachable!("a stream ends where it ends"),
            Self::Table(table) => table.blocks(),
            Self::Columns(file) => file.blocks,
        }
    }

    /// Bytes of the edges: of their array, or of the columns of a table. 0 for text.
    pub fn total_bytes(&self) -> u64 {
        match self {
            Self::Nothing | Self::Text(_) | Self::PackedText { .. } => 0,
            Self::Table(table) => table.bytes,
            Self::Columns(columns) => columns.bytes(),
        }
    }

    pub fn input_bytes(&self, block: u64) -> u64 {
        match self {
            Self::Text(text) => text.input_bytes(block),
            Self::Table(table) => table.input_bytes(block),
            Self::Columns(file) => file.input_bytes(block),
            Self::Nothing | Self::PackedText { .. } => unreachable!("there are no blocks of a known size"),
        }
    }
}

const NO_COLUMNS: &str = "the columns of this array have no names: omit --src, --dst, --weight and --edge-features-from; weights are \
                          given with --weights, features with --edge-features";

/// Whether options name columns, and not only that none has weights.
fn has_columns(options: &EdgeSourceOptions) -> bool {
    options.columns.is_given() && !options.columns.leaves_out_weights_only()
}

/// Detects a file's format from its first bytes, else from its name.
fn format_of(path: &Path, head: &[u8], compression: Compression) -> Result<EdgeFormat> {
    if head.starts_with(kinds::NPY) || head.starts_with(kinds::ZIP) {
        return Ok(EdgeFormat::Npy);
    }
    if head.starts_with(kinds::PARQUET) {
        return Ok(EdgeFormat::Parquet);
    }
    let mut name = PathBuf::from(path.file_name().unwrap_or_default());
    if compression != Compression::None && names_compression(&name) {
        name.set_extension("");
    }
    if let Some(format) = named_format(&name) {
        return Ok(format);
    }
    let Some(nul) = head.iter().position(|&byte| byte == 0).filter(|_| compression == Compression::None) else {
        return Ok(EdgeFormat::Tsv);
    };
    let problem = match is_text_with_nuls(head) {
        true => format!("found a NUL byte in text; remove such bytes: {}", Conversion::RemoveNuls.command(path)),
        false => format!(
            "found a NUL byte: this is a binary file (name its --format: npy, u32, u64 or parquet) or text in UTF-16 \
             (convert it: {})",
            Conversion::Utf16ToUtf8.command(path)
        ),
    };
    Err(Error::input(path, Position::Offset(nul as u64), problem))
}

/// Whether these are lines of text with a few NUL bytes, or with many at their end.
fn is_text_with_nuls(head: &[u8]) -> bool {
    let end = head.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let text = &head[..end];
    let nuls = text.iter().filter(|&&byte| byte == 0).count();
    let controls = text.iter().filter(|&&byte| byte < b'\t').count();
    nuls == controls && 4 * nuls < text.len() && text.contains(&b'\n')
}

/// The format that the name of a file says. Other names are names of text.
fn named_format(name: &Path) -> Option<EdgeFormat> {
    match extension(name).as_str() {
        "csv" => Some(EdgeFormat::Csv),
        "npy" | "npz" => Some(EdgeFormat::Npy),
        "parquet" | "pq" => Some(EdgeFormat::Parquet),
        "u32" => Some(EdgeFormat::U32),
        "u64" => Some(EdgeFormat::U64),
        _ => None,
    }
}

fn extension(name: &Path) -> String {
    name.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}

fn names_compression(name: &Path) -> bool {
    matches!(extension(name).as_str(), "gz" | "zst" | "zstd" | "bgz")
}
