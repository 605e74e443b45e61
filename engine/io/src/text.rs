//! Escapes text from files and file names before it is shown on a terminal.

use std::borrow::Cow;

/// Escapes all characters of `text` that a terminal interprets instead of displaying: control characters (they make
/// escape sequences), line ends, and marks that change the direction of writing.
///
/// Use it for text that people read: messages, summaries, tables. Output for programs keeps its bytes.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(acts_on_terminal) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\n' | '\r' | '\t' => shown.extend(character.escape_default()),
            _ if acts_on_terminal(character) => shown.extend(character.escape_unicode()),
            _ => shown.push(character),
        }
    }
    Cow::Owned(shown)
}

/// Like [`printable`], but keeps line ends.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    if !text.contains(|character| character != '\n' && acts_on_terminal(character)) {
        return Cow::Borrowed(text);
    }
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n").into()
}

fn acts_on_terminal(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            // Marks, embeddings, overrides and isolates of direction; separators of lines and paragraphs.
            '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Names for people, printable: the first ones, and how many more there are.
pub fn first_names(names: &[String]) -> String {
    const SHOWN_MAX: usize = 6;
    let shown: Vec<_> = names.iter().take(SHOWN_MAX).map(|name| printable(name)).collect();
    match names.len().checked_sub(SHOWN_MAX) {
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Ascending numbers as text: `0-3, 7`.
pub fn ranges(numbers: &[u32]) -> String {
    let mut text = String::new();
    for run in numbers.chunk_by(|a, b| a + 1 == *b) {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(&run[0].to_string());
        if run.len() > 1 {
            text.push_str(&format!("-{}", run[run.len() - 1]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_terminals_interpret_are_escaped() {
        for (text, shown) in [
            ("\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            ("a\nb\r\tc\0", "a\\nb\\r\\tc\\u{0}"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("admin\u{202e}txt", "admin\\u{202e}txt"),
            ("\u{7f}", "\\u{7f}"),
        ] {
            assert_eq!(printable(text), shown);
            assert!(!shown.chars().any(acts_on_terminal));
        }
    }

    #[test]
    fn names_in_any_script_stay_as_they_are() {
        for text in ["", "a b", "C:\\x", "\"quoted\"", "größe", "東京", "עברית", "🦀", "e\u{301}"] {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn line_ends_of_a_layout_are_kept() {
        assert_eq!(printable_lines("a\nb"), "a\nb");
        assert_eq!(printable_lines("a\n\x1b[2J\nb\n"), "a\n\\u{1b}[2J\nb\n");
    }

    #[test]
    fn chunks_are_listed_short() {
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[5]), "5");
        assert_eq!(ranges(&[0, 1, 2, 3, 7, 9, 10]), "0-3, 7, 9-10");
    }
}
