//! Tables with named columns, as Parquet or CSV. Rows come in groups, and one group is in memory.
//!
//! | shape of a column | Parquet | CSV |
//! |---|---|---|
//! | [`Shape::One`] | a required value | a value |
//! | [`Shape::Optional`] | a value or null | a value or nothing |
//! | [`Shape::Vector`] | a list | a column for each value: `NAME_0`, `NAME_1`, ... |
//! | [`Shape::List`] | a list or null | values with semicolons between them, or nothing |

mod cells;
mod csv;
mod parquet;

use std::{io::Write, path::Path};

use grappa_io::{Error, durable::Destination};

pub use self::cells::{Cells, Column, GroupSink, Scalar, Shape, Values};
pub(super) use self::csv::push_quoted;
use self::{csv::CsvWriter, parquet::ParquetWriter};

/// Rows of a group at most, and bytes of them.
const GROUP_ROWS: u64 = 1 << 17;
const GROUP_BYTES: u64 = 8 << 20;

/// Groups of a Parquet file, which numbers them with 16 bits.
const GROUPS_MAX: u64 = i16::MAX as u64;

/// The rows of a group, if each of `rows` has `row_bytes` bytes. More rows than groups of the usual size can hold make groups larger.
pub fn group_rows(row_bytes: usize, rows: u64) -> u64 {
    let usual = (GROUP_BYTES / row_bytes.max(1) as u64).clamp(1, GROUP_ROWS);
    usual.max(rows.div_ceil(GROUPS_MAX))
}

/// The format of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableFormat {
    /// `.parquet`
    Parquet,
    /// `.csv`
    Csv,
}

impl TableFormat {
    /// The format that the ending of a name says.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("parquet") => Some(Self::Parquet),
            Some("csv") => Some(Self::Csv),
            _ => None,
        }
    }
}

/// The place of a table.
pub enum TableOut<'a> {
    /// A file.
    File(Destination<'a>, TableFormat),
    /// Standard output or the like, as CSV.
    Text(&'a mut (dyn Write + Send)),
}

/// Writes a table: `fill` writes all groups. A file gets its name when it is complete and synced. Returns the number of bytes.
///
/// # Errors
/// If `fill` fails, the file exists and is not to be replaced, or it cannot be written.
pub fn write_table<E: From<Error>>(
    out: TableOut<'_>,
    columns: &[Column],
    fill: impl FnOnce(&mut dyn GroupSink) -> Result<(), E>,
) -> Result<u64, E> {
    match out {
        TableOut::Text(out) => {
            let mut writer = CsvWriter::new(out, Path::new("standard output"), columns)?;
            fill(&mut writer)?;
            Ok(writer.finish()?)
        }
        TableOut::File(destination, format) => {
            let temporary = destination.begin()?;
            match format {
                TableFormat::Csv => {
                    let mut writer = CsvWriter::new(&temporary.file, &temporary.path, columns)?;
                    fill(&mut writer)?;
                    writer.finish()?;
                }
                TableFormat::Parquet => {
                    let mut writer = ParquetWriter::new(&temporary.file, &temporary.path, columns)?;
                    fill(&mut writer)?;
                    writer.finish()?;
                }
            }
            let length = temporary.file.metadata().map_err(Error::io("read", &temporary.path))?.len();
            temporary.finish()?;
            Ok(length)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ::parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;

    /// A column of each shape, with 3 rows.
    fn sample() -> (Vec<Column>, Vec<Cells>) {
        let columns = vec![
            Column::new("id", Scalar::Text, Shape::One),
            Column::new("class", Scalar::Integer, Shape::Optional),
            Column::new("x", Scalar::Float, Shape::Vector(2)),
            Column::new("sets of classes", Scalar::Text, Shape::List),
            Column::new("big", Scalar::Unsigned, Shape::One),
        ];
        let texts = |texts: &[&str]| Values::Texts(texts.iter().map(|text| text.as_bytes().to_vec()).collect());
        let cells = vec![
            texts(&["plain", "a,\"b\"", " c"]).into(),
            Cells { values: Values::Integers(vec![-3, 4]), counts: vec![Some(1), None, Some(1)] },
            Values::Floats(vec![0.5, 2.5, f32::NAN, 2.0, 0.25, 3.5]).into(),
            Cells { values: texts(&["r", "s"]), counts: vec![Some(2), None, Some(0)] },
            Values::Integers(vec![0, -1, 7]).into(),
        ];
        (columns, cells)
    }

    #[test]
    fn text_has_a_header_and_quotes_where_they_are_needed() {
        let (columns, cells) = sample();
        let mut text = Vec::new();
        let bytes = write_table(TableOut::Text(&mut text), &columns, |sink| sink.write(&cells)).unwrap();
        assert_eq!(bytes, text.len() as u64);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "id,class,x_0,x_1,sets of classes,big\n\
             plain,-3,0.5,2.5,r;s,0\n\
             \"a,\"\"b\"\"\",,NaN,2,,18446744073709551615\n\
             \" c\",4,0.25,3.5,,7\n"
        );
    }

    #[test]
    fn parquet_has_the_same_rows_in_each_group() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let (columns, cells) = sample();
        let out = TableOut::File(path.as_path().into(), TableFormat::Parquet);
        let bytes = write_table(out, &columns, |sink| {
            sink.write(&cells)?;
            sink.write(&cells)
        });
        assert_eq!(bytes.unwrap(), path.metadata().unwrap().len());
        let reader = SerializedFileReader::new(fs::File::open(&path).unwrap()).unwrap();
        let rows: Vec<String> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        let expected = [
            "{id: \"plain\", class: -3, x: [0.5, 2.5], sets of classes: [\"r\", \"s\"], big: 0}",
            "{id: \"a,\"b\"\", class: null, x: [NaN, 2.0], sets of classes: null, big: 18446744073709551615}",
            "{id: \" c\", class: 4, x: [0.25, 3.5], sets of classes: [], big: 7}",
        ];
        assert_eq!(rows, [expected, expected].concat());
        let again = TableOut::File(path.as_path().into(), TableFormat::Parquet);
        let error = write_table(again, &columns, |sink| sink.write(&cells)).unwrap_err();
        assert!(matches!(error, Error::Exists { .. }), "{error}");
    }

    #[test]
    fn a_parquet_file_has_no_more_groups_than_it_can_number() {
        for (row_bytes, rows) in [(0, 0), (8, 1 << 20), (4096, 1 << 30), (24, 1 << 40)] {
            let group = group_rows(row_bytes, rows);
            assert!(group > 0 && rows.div_ceil(group) <= GROUPS_MAX, "{row_bytes} {rows}");
        }
        assert_eq!(group_rows(8, 1 << 30), GROUP_ROWS);
        assert_eq!(group_rows(1 << 20, 1000), 8);
    }

    #[test]
    fn text_that_is_not_utf8_is_no_parquet() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let columns = [Column::new("id", Scalar::Text, Shape::One)];
        let cells = || [Values::Texts(vec![b"a\xff".to_vec()]).into()];
        let out = TableOut::File(path.as_path().into(), TableFormat::Parquet);
        let error = write_table(out, &columns, |sink| sink.write(&cells())).unwrap_err().to_string();
        assert!(error.contains(r#""a\xff" is not UTF-8"#) && error.contains(".csv"), "{error}");
        assert!(!path.exists());
        let mut text = Vec::new();
        write_table(TableOut::Text(&mut text), &columns, |sink| sink.write(&cells())).unwrap();
        assert_eq!(text, b"id\na\xff\n");
    }
}
