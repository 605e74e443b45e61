//! The roles of columns: which ones have sources, targets and weights, or ids, labels, splits and features. The only place that
//! knows names of columns, for text and Parquet alike.
//!
//! A role comes from an option, else from a known name, else from the values. A column whose role is not certain is an error
//! that has the options that say it.

mod edges;
mod names;
mod nodes;

pub use self::{
    edges::{EdgeColumnOptions, EdgeEnd, TimeColumn},
    nodes::TableOptions,
};
pub(crate) use self::{
    edges::{EdgeColumns, is_header_of_edges, names_both_ends},
    names::{LABEL_NAMES, is_id_name, is_known_name},
    nodes::{Kind, Purpose, Roles, TableColumn, shell_list},
};
use crate::messages::in_shell;

/// The word that gives a role to no column.
const NONE: &str = "none";

/// The column that the user calls `column_name`: its name, its name in other letters if that is the only one, or its number, from 1.
fn find(names: &[&str], column_name: &str, option: &str) -> Result<usize, String> {
    let same: Vec<usize> = (0..names.len()).filter(|&column| names[column] == column_name).collect();
    match same[..] {
        [] => {}
        [column] => return Ok(column),
        _ => {
            let numbers: Vec<String> = same.iter().map(|column| (column + 1).to_string()).collect();
            return Err(format!(
                "{} columns are called {}; give {option} the number of one: {}",
                same.len(),
                in_shell(column_name),
                numbers.join(", ")
            ));
        }
    }
    let mut alike = (0..names.len()).filter(|&column| names[column].eq_ignore_ascii_case(column_name));
    if let (Some(column), None) = (alike.next(), alike.next()) {
        return Ok(column);
    }
    match column_name.parse() {
        Ok(number) if (1..=names.len()).contains(&number) => Ok(number - 1),
        _ => Err(format!("there is no column {}; give {option} one of {}", in_shell(column_name), listed(names, ", "))),
    }
}

/// The columns of a header in which the user names one. `column_names` are names, not numbers.
pub(crate) fn names_one_of<'a>(names: &[&str], mut column_names: impl Iterator<Item = &'a str>) -> bool {
    column_names.any(|column_name| column_name.parse::<usize>().is_err() && find(names, column_name, "").is_ok())
}

/// Names for people, quoted for a shell where they need it.
pub(crate) fn listed(names: &[impl AsRef<str>], between: &str) -> String {
    const SHOWN_MAX: usize = 20;
    let mut shown: Vec<_> = names.iter().take(SHOWN_MAX).map(|name| in_shell(name.as_ref())).collect();
    if names.len() > SHOWN_MAX {
        shown.push(format!("{} more", names.len() - SHOWN_MAX));
    }
    shown.join(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_found_by_name_else_by_number() {
        let names = ["src", "Dst", "3", "x", "X"];
        for (column_name, expected) in [("src", 0), ("dst", 1), ("2", 1), ("3", 2), ("X", 4)] {
            assert_eq!(find(&names, column_name, "--src"), Ok(expected), "{column_name}");
        }
        for column_name in ["to", "0", "6", ""] {
            let error = find(&names, column_name, "--src").unwrap_err();
            assert!(error.contains("give --src one of src, Dst, 3, x, X"), "{error}");
        }
        let error = find(&["a", "b", "a"], "a", "--src").unwrap_err();
        assert!(error.contains("give --src the number of one: 1, 3"), "{error}");
    }

    #[test]
    fn a_word_is_quoted_where_a_shell_would_split_it() {
        for (word, expected) in
            [("user_id", "user_id"), (":ID", ":ID"), ("node id", "'node id'"), ("a'b", r"'a'\''b'"), ("", "''")]
        {
            assert_eq!(in_shell(word), expected);
        }
    }
}
