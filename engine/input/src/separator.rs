//! What separates the columns of text, and how it is found from the first lines.

use std::{borrow::Cow, iter, str::FromStr};

use memchr::{memchr, memchr2};

/// A field without quotes.
pub(crate) type Field<'a> = Cow<'a, [u8]>;

/// A quoted field does not end, or is followed by other text than a separator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenQuote;

impl OpenQuote {
    /// The fault in one clause.
    pub const REASON: &str = "a quoted field is not closed, or does not end at a separator";
}

/// Removes blanks and tabs from both ends.
pub(crate) fn trim(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|&b| !is_blank(b)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|&b| !is_blank(b)).map_or(start, |last| last + 1);
    &bytes[start..end]
}

pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// A field without the quotes around it, if it has some.
pub(crate) fn unquoted(field: &[u8]) -> &[u8] {
    field.strip_prefix(b"\"").and_then(|field| field.strip_suffix(b"\"")).unwrap_or(field)
}

/// The separator of the columns of a text file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Separator {
    /// One tab.
    Tab,
    /// A comma. A field may be in double quotes, with quotes inside doubled.
    Comma,
    /// A semicolon. Fields may be in quotes as with commas.
    Semicolon,
    /// A vertical bar. Fields may be in quotes as with commas.
    Bar,
    /// A run of spaces or tabs.
    Spaces,
}

impl Separator {
    /// All separators.
    pub const ALL: [Self; 5] = [Self::Tab, Self::Comma, Self::Semicolon, Self::Bar, Self::Spaces];

    /// Its word on the command line, its plural, and itself in a command of sed.
    fn words(self) -> [&'static str; 3] {
        match self {
            Self::Tab => ["tab", "tabs", "\\t"],
            Self::Comma => ["comma", "commas", ","],
            Self::Semicolon => ["semicolon", "semicolons", ";"],
            Self::Bar => ["bar", "bars", "|"],
            Self::Spaces => ["spaces", "spaces", " "],
        }
    }

    /// The separator in a command of sed.
    pub(crate) fn in_sed(self) -> &'static str {
        self.words()[2]
    }

    /// Its word on the command line.
    pub fn word(self) -> &'static str {
        self.words()[0]
    }

    /// Its plural, for messages.
    pub fn plural(self) -> &'static str {
        self.words()[1]
    }

    /// The byte that separates integers, besides blanks: between these a comma is as good as a blank.
    pub(crate) fn byte_between_integers(self) -> u8 {
        match self {
            Self::Semicolon => b';',
            Self::Bar => b'|',
            Self::Tab | Self::Comma | Self::Spaces => b',',
        }
    }

    /// The first field of `text`, trimmed and without quotes, and what follows its separator.
    fn first(self, text: &[u8]) -> Result<(Field<'_>, Option<&[u8]>), OpenQuote> {
        // Two tabs in a row enclose an empty column; two blanks are one gap.
        let text = if self == Self::Tab { text } else { trim(text) };
        let end = match self {
            Self::Tab => memchr(b'\t', text),
            Self::Spaces => memchr2(b' ', b'\t', text),
            Self::Comma | Self::Semicolon | Self::Bar => {
                let byte = self.byte_between_integers();
                if text.first() == Some(&b'"') {
                    let (field, after) = quoted(text)?;
                    return match after {
                        [] => Ok((field, None)),
                        [next, after @ ..] if *next == byte => Ok((field, Some(after))),
                        _ => Err(OpenQuote),
                    };
                }
                memchr(byte, text)
            }
        };
        Ok(match end {
            Some(end) => (trim(&text[..end]).into(), Some(&text[end + 1..])),
            None => (trim(text).into(), None),
        })
    }

    /// The fields of a line, trimmed and without quotes.
    pub(crate) fn split(self, line: &[u8]) -> impl Iterator<Item = Result<Field<'_>, OpenQuote>> {
        // A tab at the end of a line is an empty field.
        let mut rest = Some(if self == Self::Tab { line } else { trim(line) });
        iter::from_fn(move || {
            let field = self.first(rest.take()?);
            Some(field.map(|(field, after)| {
                rest = after;
                field
            }))
        })
    }

    /// All of them.
    pub(crate) fn fields(self, line: &[u8]) -> Result<Vec<Field<'_>>, OpenQuote> {
        self.split(line).collect()
    }

    /// The number of fields on a line. None if a quote is not closed.
    fn count(self, line: &[u8]) -> Option<usize> {
        self.split(line).try_fold(0, |count, field| field.ok().map(|_| count + 1))
    }

    /// Finds what separates the columns of these lines: the separator with the same number of fields, at least two, on each of
    /// them. A separator that people rarely write in a name wins over spaces, and tabs over all others. If none fits, the one
    /// of the first line decides, and lines that contradict it are bad lines.
    ///
    /// # Errors
    /// If two of them fit, such as the comma and the semicolon in `1;2;0,5`. The error names `option`.
    pub(crate) fn of_lines<'a>(lines: impl Iterator<Item = &'a [u8]> + Clone, option: &str) -> Result<Self, String> {
        if Self::Tab.fits(lines.clone()) {
            return Ok(Self::Tab);
        }
        let strong = [Self::Comma, Self::Semicolon, Self::Bar].into_iter();
        let mut strong = strong.filter(|separator| separator.fits(lines.clone()));
        match (strong.next(), strong.next()) {
            (Some(one), Some(other)) => Err(format!(
                "the columns may be separated by {} or by {}; give {option} {} or {option} {}",
                one.plural(),
                other.plural(),
                one.word(),
                other.word()
            )),
            (Some(separator), None) => Ok(separator),
            (None, _) if Self::Spaces.fits(lines.clone()) => Ok(Self::Spaces),
            (None, _) => Ok(Self::of_line(lines.clone().next().unwrap_or_default())),
        }
    }

    /// Whether all lines have the same number of fields, at least two.
    fn fits<'a>(self, lines: impl Iterator<Item = &'a [u8]>) -> bool {
        let mut counts = lines.map(|line| self.count(line));
        let first = counts.next().flatten();
        first.is_some_and(|first| first >= 2) && counts.all(|count| count == first)
    }

    /// The separator of a line that stands alone.
    fn of_line(line: &[u8]) -> Self {
        let strong = [Self::Tab, Self::Comma, Self::Semicolon, Self::Bar].into_iter();
        let mut fitting = strong.filter(|separator| separator.count(line).is_some_and(|count| count >= 2));
        fitting.next().unwrap_or(Self::Spaces)
    }
}

impl FromStr for Separator {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|separator| separator.word() == text);
        found.ok_or_else(|| "expected `tab`, `comma`, `semicolon`, `bar` or `spaces`".to_owned())
    }
}

/// Parses the quoted field at the start of `text`. Returns it and the rest, trimmed.
fn quoted(text: &[u8]) -> Result<(Field<'_>, &[u8]), OpenQuote> {
    let mut field = Cow::Borrowed(&[][..]);
    let mut rest = &text[1..];
    loop {
        let end = memchr(b'"', rest).ok_or(OpenQuote)?;
        match &mut field {
            Cow::Borrowed([]) => field = rest[..end].into(),
            part => part.to_mut().extend_from_slice(&rest[..end]),
        }
        rest = &rest[end + 1..];
        match rest.first() {
            Some(b'"') => {
                field.to_mut().push(b'"');
                rest = &rest[1..];
            }
            _ => return Ok((field, trim(rest))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn separator_of(text: &str) -> Result<Separator, String> {
        Separator::of_lines(text.lines().map(str::as_bytes), "--separator")
    }

    #[test]
    fn the_separator_of_all_first_lines_is_found() {
        for (text, expected) in [
            ("alice, bob\nbob, carol", Separator::Comma),
            ("New York,Boston\nBoston,Paris", Separator::Comma),
            ("New York\tBoston, MA", Separator::Tab),
            ("a b\nNew,York c", Separator::Spaces),
            ("a;b\nc;d", Separator::Semicolon),
            ("a|b|1\nc|d|2", Separator::Bar),
            ("\"a;b\",c\n\"d;e\",f", Separator::Comma),
            ("\"x, y\";z", Separator::Semicolon),
            ("a b\nc", Separator::Spaces),
            ("a,b\nc d", Separator::Comma),
            ("7", Separator::Spaces),
            ("", Separator::Spaces),
        ] {
            assert_eq!(separator_of(text), Ok(expected), "{text}");
        }
        let error = separator_of("1;2;0,5\n2;3;1,5").unwrap_err();
        assert!(error.contains("--separator comma or --separator semicolon"), "{error}");
    }
}
