//! The option `--assign`.

use grappa_engine::ingest::{Assign, PARTS_MAX, Partitioner};

pub fn parse_assign(text: &str) -> Result<Assign, String> {
    match text {
        "random" => Ok(Assign::Random),
        "range" => Ok(Assign::Range),
        _ => match text.split_once(':').unwrap_or((text, "")) {
            ("file", path) if !path.is_empty() => Ok(Assign::File(path.into())),
            (name, parts) => parse_streamed(name, parts),
        },
    }
}

/// The number of parts of `--assign ldg` and `--assign fennel`.
const PARTS_DEFAULT: u32 = 16;

fn parse_streamed(name: &str, parts: &str) -> Result<Assign, String> {
    let Some(partitioner) = Partitioner::ALL.into_iter().find(|partitioner| partitioner.name() == name) else {
        return Err(
            "expected `random`, `range`, `file:PATH`, `ldg`, `ldg:PARTS`, `fennel` or `fennel:PARTS`".to_owned()
        );
    };
    let parts = match parts {
        "" => PARTS_DEFAULT,
        text => match text.parse() {
            Ok(parts) if (2..=PARTS_MAX).contains(&parts) => parts,
            _ => return Err(format!("expected from 2 to {PARTS_MAX} parts, found `{text}`")),
        },
    };
    Ok(Assign::Streamed { partitioner, parts })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streamed(partitioner: Partitioner, parts: u32) -> Assign {
        Assign::Streamed { partitioner, parts }
    }

    #[test]
    fn parts_are_found_by_name_and_number() {
        for (text, expected) in [
            ("random", Assign::Random),
            ("range", Assign::Range),
            ("file:a:b.txt", Assign::File("a:b.txt".into())),
            ("ldg", streamed(Partitioner::Ldg, PARTS_DEFAULT)),
            ("ldg:2", streamed(Partitioner::Ldg, 2)),
            ("fennel:4096", streamed(Partitioner::Fennel, PARTS_MAX)),
        ] {
            assert_eq!(parse_assign(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn other_words_and_numbers_are_told_what_is_expected() {
        for (text, told) in [
            ("metis", "`ldg:PARTS`"),
            ("file:", "`file:PATH`"),
            ("ldg:1", "from 2 to 4096 parts, found `1`"),
            ("ldg:4097", "found `4097`"),
            ("fennel:many", "found `many`"),
        ] {
            let error = parse_assign(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
