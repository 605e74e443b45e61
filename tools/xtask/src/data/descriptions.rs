//! Features of packages, from their descriptions and tags.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::Result;
use blake2::{Blake2b, Digest, digest::consts::U8};

use super::{
    index::{self, Index, field},
    packages::{Package, Packages},
};

/// Features per package.
pub const DIM: usize = 128;

/// The longest word in bytes. The rest of a longer word is another word.
const WORD_BYTES_MAX: usize = 24;

/// Long descriptions, by the MD5 that packages refer to.
pub fn long(index: &Index) -> Result<HashMap<String, String>> {
    let mut found = HashMap::new();
    for path in &index.translations {
        index::entries(path, |entry| {
            let md5 = field(entry, "Description-md5");
            if !md5.is_empty() {
                found.insert(md5.to_owned(), field(entry, "Description-en").to_owned());
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// The number of each word in each package's description, without the words of its own name.
pub fn bags(packages: &Packages, long: &HashMap<String, String>) -> Vec<BTreeMap<String, u32>> {
    let bag = |package: &Package| {
        let own: HashSet<&str> = words(&package.name).collect();
        let long = long.get(&package.description_md5).map_or("", String::as_str);
        let text = format!("{} {long}", package.description).to_lowercase();
        let mut bag = BTreeMap::new();
        for word in words(&text).filter(|word| !own.contains(word)) {
            *bag.entry(word.to_owned()).or_default() += 1;
        }
        bag
    };
    packages.list().iter().map(bag).collect()
}

/// The features of all packages: one row of [`DIM`] values each.
///
/// The hash of a word or tag determines its column and sign. Its weight is (1 + ln of its count in the package) x ln
/// (number of packages / number of packages that have it). Rows have length 1, or 0.
pub fn features(packages: &Packages, long: &HashMap<String, String>) -> Vec<f32> {
    let mut bags = bags(packages, long);
    for (bag, package) in bags.iter_mut().zip(packages.list()) {
        for tag in package.tags.split(|c: char| c == ',' || c.is_whitespace()) {
            if tag.contains("::") {
                *bag.entry(format!("tag {tag}")).or_default() += 1;
            }
        }
    }
    let mut documents: HashMap<&str, u32> = HashMap::new();
    for word in bags.iter().flat_map(BTreeMap::keys) {
        *documents.entry(word).or_default() += 1;
    }
    let slots: HashMap<&str, (usize, f64)> = documents
        .into_iter()
        .map(|(word, count)| {
            let (column, sign) = slot(word.as_bytes(), DIM);
            (word, (column, sign * (packages.len() as f64 / f64::from(count)).ln()))
        })
        .collect();
    let mut features = vec![0.0; packages.len() * DIM];
    for (row, bag) in features.chunks_exact_mut(DIM).zip(&bags) {
        for (word, &count) in bag {
            let (column, weight) = slots[word.as_str()];
            row[column] += (weight * (1.0 + f64::from(count).ln())) as f32;
        }
        normalize(row);
    }
    features
}

/// The column of a word among `dim`, and its sign.
pub fn slot(word: &[u8], dim: usize) -> (usize, f64) {
    let digest = Blake2b::<U8>::digest(word);
    let hash = u64::from_le_bytes(digest.into());
    ((hash % dim as u64) as usize, if hash >> 63 == 1 { 1.0 } else { -1.0 })
}

/// Scales a row to length 1, unless it is 0.
///
/// Squares are added in eight lanes, and these in pairs, so that the result has the same bits as NumPy's.
pub fn normalize(row: &mut [f32]) {
    let mut lanes = [0.0f32; 8];
    for (value, lane) in row.iter().zip((0..8).cycle()) {
        lanes[lane] += value * value;
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    let length = (((a + b) + (c + d)) + ((e + f) + (g + h))).sqrt().max(1e-12);
    for value in row {
        *value /= length;
    }
}

/// Words of lower-case text: a letter, then at least one letter, digit or `+`, up to the longest word.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'+';
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let start = rest.find(|c: char| c.is_ascii_lowercase())?;
            rest = &rest[start..];
            let length = rest.bytes().take(WORD_BYTES_MAX).take_while(is_part).count();
            let word = &rest[..length];
            rest = &rest[length..];
            if length > 1 {
                return Some(word);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_letters_then_letters_digits_and_plus() {
        let found: Vec<&str> = words("a g++ 7zip, x-ray caf\u{e9} abcdefghijklmnopqrstuvwxyz12").collect();
        assert_eq!(found, ["g++", "zip", "ray", "caf", "abcdefghijklmnopqrstuvwx", "yz12"]);
    }

    #[test]
    fn a_word_always_has_the_same_column_and_sign() {
        // From Python's hashlib.blake2b(word, digest_size=8).
        assert_eq!(slot(b"shell", DIM), (51, 1.0));
        assert_eq!(slot(b"editor", DIM), (126, -1.0));
    }

    #[test]
    fn rows_have_length_one_or_zero() {
        let mut row = [3.0, 4.0];
        normalize(&mut row);
        assert_eq!(row, [0.6, 0.8]);
        let mut row = [0.0; 2];
        normalize(&mut row);
        assert_eq!(row, [0.0; 2]);
    }
}
