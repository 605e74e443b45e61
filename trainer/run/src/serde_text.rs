//! serde for values with `Display` and `FromStr`, as `#[serde(with = "serde_text")]`.
//!
//! A value is read from a string, a number (`threads = 8`), or a list of these (`fanouts = [15, 10]`, the same as `"15,10"`). It
//! is written as a number if that reads back to the same text, and as a string otherwise.

use std::{fmt, marker::PhantomData, str::FromStr};

use serde::{
    Deserializer, Serializer,
    de::{Error, SeqAccess, Visitor},
};

/// Writes a value as a number if its text is one, else as a string.
///
/// # Errors
/// If the serializer fails.
pub fn serialize<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    let text = value.to_string();
    match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => serializer.serialize_i64(number),
        _ => serializer.serialize_str(&text),
    }
}

/// Reads a string, a number, or a list of either.
///
/// # Errors
/// If the text does not parse.
pub fn deserialize<'de, T: FromStr<Err: fmt::Display>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(Text(PhantomData))
}

struct Text<T>(PhantomData<T>);

impl<T: FromStr<Err: fmt::Display>> Text<T> {
    fn parse<E: Error>(text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Visitor<'de> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a number")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        Self::parse(text)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        Self::parse(&number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        Self::parse(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        Self::parse(&number.to_string())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<T, A::Error> {
        let mut texts = Vec::new();
        while let Some(Item(text)) = items.next_element()? {
            texts.push(text);
        }
        Self::parse(&texts.join(","))
    }
}

/// An item of a list, as text.
struct Item(String);

impl<'de> serde::Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer).map(Self)
    }
}
