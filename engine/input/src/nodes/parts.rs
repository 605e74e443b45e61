//! The part of each node, as graph partitioners write it.

use std::{path::Path, sync::Arc};

use grappa_io::{Error, Position, Result};

use super::split::array_id;
use crate::{
    conversions::Conversion,
    file::InputFile,
    kinds::{self, refuse_other_kinds},
    line_reader::Lines,
    messages::shown,
    npy::{self, ArrayReader, NpyArray},
    separator::trim,
};

const BATCH: usize = 1 << 16;

/// Parts are below this limit, so that a caller can hold one counter per part.
const PARTS_MAX: u64 = 1 << 20;

/// One part per node: a METIS partition file (text with one integer per line, compressed or not), or a `.npy` array of
/// integers of shape `[N]` or `[N, 1]`.
pub struct PartSource {
    file: Arc<InputFile>,
    content: PartContent,
}

enum PartContent {
    Array { reader: Box<ArrayReader>, next: u64 },
    Text(Lines),
}

impl PartSource {
    /// Opens `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let file = InputFile::open(path)?;
        refuse_other_kinds(&file)?;
        let head = file.head(8)?;
        let content = if head.starts_with(kinds::NPY) || npy::has_extension(path) {
            let array = NpyArray::open(&file)?;
            if !matches!(*array.shape, [_] | [_, 1]) || array.element.is_float() || array.element.bytes() == 1 {
                return Err(array.error(format!(
                    "expected the part of each node, integers of shape [N]; found {} of shape {}; convert it: {}",
                    array.element.name(),
                    array.shape_shown(),
                    Conversion::RavelIntegers.command(path)
                )));
            }
            PartContent::Array { reader: Box::new(array.reader()), next: 0 }
        } else {
            PartContent::Text(Lines::of_file(&file)?)
        };
        Ok(Self { file, content })
    }

    /// Replaces the contents of `out` with the next parts. Returns false at the end.
    pub fn next_parts(&mut self, out: &mut Vec<u64>) -> Result<bool> {
        out.clear();
        let file = &self.file;
        match &mut self.content {
            PartContent::Array { reader, next } => {
                let array = &reader.array;
                let count = (array.shape[0] - *next).min(BATCH as u64) as usize;
                let width = array.element.bytes();
                let mut bytes = vec![0; count * width];
                reader.read(*next, &mut bytes)?;
                for (row, bytes) in (*next..).zip(bytes.chunks_exact(width)) {
                    match array_id(array.element, bytes, row) {
                        Ok(Some(part)) if part < PARTS_MAX => out.push(part),
                        Ok(Some(part)) => return Err(bad(file, Position::Row(row), &part.to_string())),
                        Ok(None) => unreachable!("masks are refused when opened"),
                        Err((found, _)) => return Err(bad(file, Position::Row(row), &found)),
                    }
                }
                *next += count as u64;
            }
            PartContent::Text(lines) => {
                while out.len() < BATCH
                    && let Some(line) = lines.next_line()?
                {
                    let text = trim(&line.bytes);
                    match std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()) {
                        Some(part) if part < PARTS_MAX => out.push(part),
                        _ => return Err(bad(file, Position::Line(line.number), &shown(text))),
                    }
                }
            }
        }
        Ok(!out.is_empty())
    }
}

fn bad(file: &InputFile, position: Position, found: &str) -> Error {
    let problem = format!("expected the part of a node, an integer from 0 to {}, found {found}", PARTS_MAX - 1);
    Error::input(file.path(), position, problem)
}
