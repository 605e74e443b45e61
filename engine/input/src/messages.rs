//! Messages that several readers share.

use grappa_io::size::ByteSize;

/// A value, or what is wrong with it.
pub(crate) type Checked<T> = Result<T, String>;

/// The message about a line beyond `bytes_max`.
pub(crate) fn long_line(bytes_max: usize) -> String {
    format!(
        "this line is longer than {}, so the file is not lines of text; if it is a binary file of edges, name its --format \
         (npy, u32, u64 or parquet)",
        ByteSize(bytes_max as u64)
    )
}

/// Bytes of user data for a message: quoted, escaped and shortened.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const CHARS_MAX: usize = 60;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * CHARS_MAX)]);
    let mut shown: String = text.chars().take(CHARS_MAX).flat_map(char::escape_debug).collect();
    if bytes.len() > shown.len() && text.chars().count() > CHARS_MAX {
        shown.push('…');
    }
    format!("\"{shown}\"")
}

/// What reads ids from 1 to `last`.
pub fn read_ids_from_one(last: u64) -> String {
    format!("read such ids with: seq {last} > IDS, and then --ids sparse --node-ids IDS")
}

/// Advice for a file that has one row less than there are `nodes`: the mistake may be in another file.
pub(crate) fn one_less(nodes: u64) -> String {
    format!(
        "; if dense ids count from 1, {}; or, with --ids string, the header of a list of ids or edges was read as an id: remove that line",
        read_ids_from_one(nodes - 1)
    )
}

/// The message about a file with another number of rows than there are nodes. `if_more` is advice for more rows.
pub(crate) fn wrong_rows(nodes: u64, rows: u64, if_more: &str) -> String {
    format!(
        "expected {nodes} rows, one per node, found {rows}; {}{}",
        if rows > nodes { if_more } else { "the file belongs to another graph, or is incomplete" },
        if rows + 1 == nodes { one_less(nodes) } else { String::new() }
    )
}

/// A word of a command line.
pub(crate) fn in_shell(word: &str) -> String {
    match !word.is_empty()
        && !word.starts_with('-')
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.:@/+,=".contains(&byte))
    {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
