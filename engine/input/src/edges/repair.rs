//! Lines that a command mends for the whole file.

use crate::conversions::Conversion;

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Symptom {
    /// It has another number of columns.
    Columns,
    /// An id is no integer.
    Id,
    /// A quoted field does not end.
    Quote,
}

/// The command that mends a file with bad lines like `line`, and what it is for. None if there is no such command.
pub(super) fn repair_of(symptom: Symptom, line: &[u8]) -> Option<(&'static str, Conversion)> {
    let is_split = symptom == Symptom::Columns;
    let is_no_id = symptom != Symptom::Quote;
    let quotes = line.iter().filter(|&&byte| byte == b'"').count();
    let ends = [b",".as_slice(), b";", b"|"].iter().any(|end| line.trim_ascii_end().ends_with(end));
    match () {
        () if symptom == Symptom::Quote || is_split && quotes % 2 == 1 => {
            Some(("line breaks in quotes, and quotes that are not doubled, are not read: ", Conversion::PlainFields))
        }
        () if is_no_id && has_odd_characters(line) => {
            Some(("the line has blanks, digits or invisible characters that are not of ASCII: ", Conversion::PlainText))
        }
        () if is_split && ends => Some(("some lines end with separators: ", Conversion::TrimEnds)),
        () if is_no_id && has_decorated_integers(line) => {
            Some(("to read only the integers of each line: ", Conversion::DigitsOnly))
        }
        () => None,
    }
}

/// Whether there are blanks or digits beyond ASCII, controls, or characters without width.
fn has_odd_characters(line: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(line) else {
        return false;
    };
    text.chars().any(|c| match c {
        '\t' | '\r' => false,
        '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' => true,
        c if c.is_ascii() => c.is_control(),
        c => c.is_whitespace() || c.is_numeric() || c.is_control(),
    })
}

/// Whether a line has two or three integers among arrows, brackets and colons.
fn has_decorated_integers(line: &[u8]) -> bool {
    let numbers = line.split(|byte| !byte.is_ascii_digit());
    let count = numbers.filter(|digits| !digits.is_empty()).count();
    (2..=3).contains(&count)
        && line.iter().all(|byte| byte.is_ascii_digit() || b"()[]{}<>-=:;,| \t\r'\"".contains(byte))
        && line.iter().any(|byte| b"()[]{}<>=:'".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_command_that_mends_its_file() {
        let (split, id) = (Symptom::Columns, Symptom::Id);
        for (symptom, line, expected) in [
            (split, "\"a", Some(Conversion::PlainFields)),
            (Symptom::Quote, "\"a\"b\",c", Some(Conversion::PlainFields)),
            (split, "0\u{a0}1", Some(Conversion::PlainText)),
            (id, "\u{200b}0 1", Some(Conversion::PlainText)),
            (id, "\u{ff10} 1", Some(Conversion::PlainText)),
            (split, "0\u{b}1", Some(Conversion::PlainText)),
            (split, "0,1, ", Some(Conversion::TrimEnds)),
            (split, "0->1", Some(Conversion::DigitsOnly)),
            (id, "(0, 1)", Some(Conversion::DigitsOnly)),
            (split, "0::1::5", Some(Conversion::DigitsOnly)),
            (id, "a b", None),
            (id, "1_000 2", None),
            (split, "J\u{fc}rgen", None),
        ] {
            assert_eq!(repair_of(symptom, line.as_bytes()).map(|(_, conversion)| conversion), expected, "{line}");
        }
    }
}
