//! Messages about one node type or relation, in the words of a command line with types: an option has the name before its value.

use clap::{ArgAction, CommandFactory};
use grappa_engine::Error;

use super::line::is_for;
use crate::args::IngestArgs;

/// Words that follow the name of an option in sentences, and are no values.
const WORDS: [&str; 22] = [
    "a", "an", "and", "are", "as", "for", "has", "if", "in", "is", "needs", "of", "on", "one", "only", "or", "so",
    "takes", "that", "the", "to", "with",
];

/// The error with options as they are given for the node type or relation that it is about.
pub fn for_member(error: Error) -> Error {
    let Error::Member { member, source } = error else { return error };
    let named = |text: String| with_name(&text, &member);
    match *source {
        Error::Input { path, position, problem } => Error::Input { path, position, problem: named(problem) },
        Error::Conflict { contradiction, remedy } => {
            Error::Conflict { contradiction: named(contradiction), remedy: named(remedy) }
        }
        Error::Missing { data, place, remedy } => Error::Missing { data, place, remedy: named(remedy) },
        Error::Limit { request, limit, remedy } => Error::Limit { request, limit, remedy: named(remedy) },
        other => other,
    }
}

/// The text with `member=` before the value of each option that a node type or relation has.
fn with_name(text: &str, member: &str) -> String {
    // A table of --nodes has features unless this says otherwise.
    let text = text.replace("omit --features", &format!("--features-from {member}="));
    let (mut out, mut rest) = (String::new(), text.as_str());
    while let Some(at) = rest.find("--") {
        let (before, option) = rest.split_at(at);
        let length = option[2..].find(|c: char| !(c.is_ascii_lowercase() || c == '-'));
        let (option, after) = option.split_at(length.map_or(option.len(), |length| length + 2));
        out += before;
        out += option;
        rest = after;
        let Some(value) = after.strip_prefix(' ') else { continue };
        let word = value.split([' ', ',', ';', ')', '`']).next().unwrap_or_default();
        let is_value =
            !word.is_empty() && !word.starts_with("--") && !word.starts_with(member) && !WORDS.contains(&word);
        if is_value && is_for(&option[2..], member) && has_value(&option[2..]) {
            out += &format!(" {member}=");
            rest = value;
        }
    }
    out + rest
}

fn has_value(option: &str) -> bool {
    let command = IngestArgs::command();
    let found = command.get_arguments().find(|argument| argument.get_long() == Some(option));
    found.is_some_and(|argument| matches!(argument.get_action(), ArgAction::Set | ArgAction::Append))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_the_name_of_the_type_before_their_value() {
        for (text, expected) in [
            ("leave the column out: --features-from occ:token", "leave the column out: --features-from user=occ:token"),
            ("omit --features", "--features-from user="),
            ("give --features-from one of id, title", "give --features-from one of id, title"),
            ("fix it, or leave it out with --on-bad-line skip", "fix it, or leave it out with --on-bad-line skip"),
            ("give --id key --label kind, or --memory 2GiB", "give --id user=key --label user=kind, or --memory 2GiB"),
            ("use --id key, or --undirected edges", "use --id user=key, or --undirected edges"),
            ("(`--ids string`)", "(`--ids user=string`)"),
            ("an id -- any", "an id -- any"),
        ] {
            assert_eq!(with_name(text, "user"), expected);
        }
    }

    #[test]
    fn other_errors_stay_as_they_are() {
        let error = Error::conflict("--ids string", "use --ids dense");
        assert_eq!(for_member(error).to_string(), "--ids string; use --ids dense");
        let named = Error::of_member("user")(Error::conflict("--ids string", "use --ids dense"));
        assert_eq!(named.to_string(), "--ids string; use --ids dense");
        assert_eq!(for_member(named).to_string(), "--ids user=string; use --ids user=dense");
    }
}
