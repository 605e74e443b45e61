//! The value of a column in a row, and the form of a text.

use std::{borrow::Cow, collections::HashSet};

use super::date;

/// The value of a column in a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Cell<'a> {
    Missing,
    Number(f64),
    Boolean(bool),
    /// Days since 1970-01-01 in UTC.
    Date(f64),
    /// Text of a file of text, which may be any of these.
    Raw(&'a str),
    /// A string of a typed table. It is no number, though it may have digits only.
    String(&'a str),
}

impl<'a> Cell<'a> {
    /// The value as the text of a category. None for dates.
    pub fn category(self) -> Option<Cow<'a, str>> {
        match self {
            Self::Raw(text) | Self::String(text) => Some(text.into()),
            Self::Number(number) => Some(number.to_string().into()),
            Self::Boolean(value) => Some(value.to_string().into()),
            Self::Date(_) | Self::Missing => None,
        }
    }

    /// What the value looks like.
    pub fn form(self) -> Form {
        match self {
            Self::Missing => Form::Missing,
            Self::Number(number) if number.is_nan() => Form::Missing,
            Self::Number(number) => Form::Number(number),
            Self::Boolean(value) => Form::Boolean(value, TYPED),
            Self::Date(days) => Form::Date(days),
            Self::Raw(text) | Self::String(text) => form_of(text),
        }
    }
}

/// What a value looks like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Form {
    Missing,
    Number(f64),
    /// Digits with a zero in front, such as a zip code.
    Code,
    /// The value, and the number of the pair of words that has it, or [`TYPED`].
    Boolean(bool, u8),
    Date(f64),
    /// A number as people write it, and not programs: its kind.
    OtherNumber(&'static str),
    /// A date in another order than in ISO 8601, so that day and month are not certain.
    OtherDate,
    Text,
}

/// The number in the place of a pair of words if the type of the column says that its values are booleans.
pub(super) const TYPED: u8 = 7;

/// The kind of a number such as `0x1F`.
pub(crate) const HEXADECIMAL: &str = "a number in base 16";

/// The texts that stand for a missing value.
const MISSING: [&str; 13] =
    ["", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "-nan", "null", "NULL", "Null"];

/// Texts that mean false and true, without regard to case.
const BOOLEANS: [[&str; 2]; 4] = [["false", "true"], ["no", "yes"], ["f", "t"], ["n", "y"]];

/// The form of a text.
pub(crate) fn form_of(text: &str) -> Form {
    if is_missing(text) {
        Form::Missing
    } else if is_code(text) {
        Form::Code
    } else if let Ok(number) = text.parse::<f64>() {
        Form::Number(number)
    } else if let Some((value, pair)) = boolean_of(text) {
        Form::Boolean(value, pair)
    } else if let Some(days) = date::days_of(text) {
        Form::Date(days)
    } else if date::is_other_date(text) {
        Form::OtherDate
    } else if let Some(kind) = other_number(text) {
        Form::OtherNumber(kind)
    } else {
        Form::Text
    }
}

/// Whether a text stands for a missing value.
pub(crate) fn is_missing(text: &str) -> bool {
    MISSING.contains(&text)
}

/// Whether a text has only digits, and begins with a zero that a number would not have.
pub(crate) fn is_code(text: &str) -> bool {
    match text.as_bytes() {
        [b'0', next, rest @ ..] => next.is_ascii_digit() && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

fn boolean_of(text: &str) -> Option<(bool, u8)> {
    (0..).zip(BOOLEANS).find_map(|(pair, words)| {
        let at = words.iter().position(|word| word.eq_ignore_ascii_case(text))?;
        Some((at == 1, pair))
    })
}

/// The kind of a number with a percent sign, a currency, separators of thousands, a decimal comma, or in base 16.
fn other_number(text: &str) -> Option<&'static str> {
    const CURRENCIES: [char; 5] = ['$', '€', '£', '¥', '₹'];
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if let Some(number) = text.strip_suffix('%') {
        return is_number(number).then_some("a percentage");
    }
    if let Some(digits) = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        let is_hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        return is_hex.then_some(HEXADECIMAL);
    }
    let amount = unsigned.strip_prefix(CURRENCIES).or_else(|| unsigned.strip_suffix(CURRENCIES));
    if let Some(amount) = amount {
        return is_number(amount).then_some("an amount with a currency");
    }
    are_groups(unsigned).then_some("a number with separators of thousands or a decimal comma")
}

fn is_number(text: &str) -> bool {
    let text = text.trim();
    text.parse::<f64>().is_ok() || are_groups(text)
}

/// Whether a text is groups of digits with one separator between them, such as `1,234`, `1'234.5`, `1 234` and `0,5`.
fn are_groups(text: &str) -> bool {
    const SEPARATORS: [char; 8] = [',', '.', '\'', '’', ' ', '_', '\u{a0}', '\u{202f}'];
    let groups: Vec<&str> = text.split(SEPARATORS).collect();
    let are_digits = groups.iter().all(|group| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit()));
    let [first, middle @ .., last] = &groups[..] else {
        return false;
    };
    let has_comma = text.matches(SEPARATORS).count() == 1 && text.contains(',');
    let ends_in_decimals = text.chars().rfind(|c| SEPARATORS.contains(c)).is_some_and(|c| matches!(c, '.' | ','));
    let is_single_kind = middle.is_empty() || text.matches(SEPARATORS).collect::<HashSet<_>>().len() == 1;
    are_digits
        && first.len() <= 3
        && middle.iter().all(|group| group.len() == 3)
        && (has_comma || last.len() == 3 || ends_in_decimals && !is_single_kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_forms() {
        let (thousands, percent) = ("a number with separators of thousands or a decimal comma", "a percentage");
        for (text, form) in [
            ("", Form::Missing),
            ("NaN", Form::Missing),
            ("null", Form::Missing),
            ("Na", Form::Text),
            ("none", Form::Text),
            ("1.5", Form::Number(1.5)),
            ("-3e2", Form::Number(-300.0)),
            ("0", Form::Number(0.0)),
            ("0.5", Form::Number(0.5)),
            ("02134", Form::Code),
            ("007", Form::Code),
            ("TRUE", Form::Boolean(true, 0)),
            ("no", Form::Boolean(false, 1)),
            ("t", Form::Boolean(true, 2)),
            ("2024-01-02", Form::Date(19_724.0)),
            ("01/02/2024", Form::OtherDate),
            ("31.12.2024", Form::OtherDate),
            ("1,234", Form::OtherNumber(thousands)),
            ("1,234,567.5", Form::OtherNumber(thousands)),
            ("1.234.567", Form::OtherNumber(thousands)),
            ("1 234", Form::OtherNumber(thousands)),
            ("-0,5", Form::OtherNumber(thousands)),
            ("12.5%", Form::OtherNumber(percent)),
            ("12,5 %", Form::OtherNumber(percent)),
            ("$1,200", Form::OtherNumber("an amount with a currency")),
            ("5 €", Form::OtherNumber("an amount with a currency")),
            ("0x1F", Form::OtherNumber(HEXADECIMAL)),
            ("192.168.0.1", Form::Text),
            ("1.2.3", Form::Text),
            ("a3f9", Form::Text),
            ("New York", Form::Text),
            ("%", Form::Text),
            ("0x", Form::Text),
        ] {
            assert_eq!(form_of(text), form, "{text}");
        }
    }
}
