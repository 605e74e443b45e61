//! Text files of graphs that are no lists of edges: recognized, and refused with a command that converts them.

use std::{collections::HashSet, path::Path};

use grappa_io::{Error, Position, Result};

use super::fields::{NumberFields, is_comment};
use crate::{conversions::Conversion, separator::Separator};

/// Lines of different lengths that make a file one of adjacency lists.
const LISTS_MIN: usize = 3;
/// Lines with few relations that make a file one of triples.
const TRIPLES_MIN: usize = 20;

/// Fails if a file begins as another format does.
pub(super) fn refuse_other_formats(head: &[&[u8]], path: &Path) -> Result<()> {
    let first = &head[..head.len().min(LISTS_MIN)];
    let Some((name, conversion)) = first.first().and_then(|line| other_format(line, first)) else {
        return Ok(());
    };
    let remedy = match conversion {
        Some(conversion) => format!("convert it: {}", conversion.command(path)),
        None => "write a line for each edge, with source and target, or a Parquet file with the columns src and dst"
            .to_owned(),
    };
    let problem = format!("this is {name}, not a list of edges; {remedy}");
    Err(Error::input(path, Position::Whole, problem))
}

/// Fails if the lines of data are adjacency lists: a node and its neighbors, or only its neighbors (METIS).
pub(super) fn refuse_adjacency_lists(
    data: &[&[u8]],
    is_whole: bool,
    separator: Separator,
    are_strings: bool,
    path: &Path,
) -> Result<()> {
    // Lines of integers that begin as comments are bad lines.
    let data: Vec<&[u8]> = data.iter().filter(|line| are_strings || !is_comment(line)).copied().collect();
    let counts: Vec<usize> = data
        .iter()
        .map(|line| match are_strings {
            false => NumberFields::from_line(line, separator).count(),
            // Names may contain blanks.
            true => separator.fields(line).map_or(0, |fields| fields.iter().filter(|field| !field.is_empty()).count()),
        })
        .collect();
    if !are_strings && is_whole && is_metis(&data, &counts) {
        let problem = format!(
            "this is a graph of METIS, whose lines are the neighbors of each node, not a list of edges; convert it: {}",
            Conversion::MetisToEdges.command(path)
        );
        return Err(Error::input(path, Position::Whole, problem));
    }
    let most = counts.iter().copied().max().unwrap_or(0);
    let usual = counts.iter().filter(|&&count| count == 2 || count == 3).count();
    let first = counts.first().copied().unwrap_or(0);
    let differ = counts.iter().filter(|&&count| count != first).count();
    if counts.len() < LISTS_MIN || most < 4 || differ == 0 || 2 * usual > counts.len() {
        return Ok(());
    }
    let split = match separator {
        Separator::Comma | Separator::Semicolon => format!("-F'{}' ", separator.byte_between_integers() as char),
        Separator::Bar => "-F'[|]' ".to_owned(),
        Separator::Tab | Separator::Spaces => String::new(),
    };
    let split = match data.first() {
        Some(line) if line.contains(&b':') => "-F'[: \\t,]+' ".to_owned(),
        _ => split,
    };
    let problem = format!(
        "lines have from {} to {most} columns, as adjacency lists have: a node and its neighbors; write a line for each edge: {} (or \
         if this is METIS: {})",
        counts.iter().copied().min().unwrap_or(0),
        Conversion::ListsToEdges.command(path).replacen("SPLIT", &split, 1),
        Conversion::MetisToEdges.command(path)
    );
    Err(Error::input(path, Position::Whole, problem))
}

/// Whether lines of integers are a graph of METIS without weights: the first one has the numbers of nodes and edges, and the others the
/// neighbors of each node, counted from 1.
fn is_metis(data: &[&[u8]], counts: &[usize]) -> bool {
    let [first, lists @ ..] = data else { return false };
    let Some((nodes, edges)) = numbers(first).and_then(|first| match first[..] {
        [nodes, edges] | [nodes, edges, 0] => Some((nodes, edges)),
        _ => None,
    }) else {
        return false;
    };
    // A node without neighbors has a blank line, which is not among these.
    let (rows, ends) = (lists.len() as u64, counts[1..].iter().sum::<usize>() as u64);
    if rows == 0 || rows > nodes || edges.checked_mul(2) != Some(ends) {
        return false;
    }
    let Some(lists) = lists.iter().map(|line| numbers(line)).collect::<Option<Vec<_>>>() else {
        return false;
    };
    let arcs: HashSet<(u64, u64)> =
        (1..).zip(lists).flat_map(|(node, ids)| ids.into_iter().map(move |id| (node, id))).collect();
    match rows == nodes {
        // Each edge is in the lists of both of its ends.
        true => arcs.iter().all(|&(node, id)| node != id && arcs.contains(&(id, node))),
        // Edges have two columns.
        false => counts[1..].iter().any(|&count| count != 2) && arcs.iter().all(|(_, id)| (1..=nodes).contains(id)),
    }
}

/// The integers in a line, if it has nothing else.
fn numbers(line: &[u8]) -> Option<Vec<u64>> {
    let fields = fields_of(line, Separator::Spaces);
    fields.map(|field| std::str::from_utf8(field).ok()?.parse().ok()).collect()
}

/// Whether the third of three columns of integers has ids: triples of a knowledge base, whose second column has few relations, or
/// adjacency lists of two neighbors each. Weights repeat, or are no ids.
pub(super) fn third_column_has_ids(data: &[&[u8]], separator: Separator) -> bool {
    let mut columns = [const { Vec::new() }; 3];
    for line in data {
        let fields: Vec<&[u8]> = fields_of(line, separator).collect();
        if fields.len() != 3 || !fields[2].iter().all(u8::is_ascii_digit) {
            return false;
        }
        columns.iter_mut().zip(fields).for_each(|(column, field)| column.push(field));
    }
    let all = data.len();
    let [firsts, seconds, thirds] = columns.map(HashSet::<&[u8]>::from_iter);
    let are_ids = thirds.iter().all(|third| firsts.contains(third) || seconds.contains(third));
    let are_relations = 2 * seconds.len() <= thirds.len();
    all >= LISTS_MIN
        && 2 * thirds.len() > all
        && (are_ids && (are_relations || firsts.len() == all) || are_relations && all >= TRIPLES_MIN)
}

/// The fields of a line; of integers, blanks separate as well.
fn fields_of(line: &[u8], separator: Separator) -> impl Iterator<Item = &[u8]> {
    let byte = match separator {
        Separator::Tab | Separator::Spaces => b' ',
        other => other.byte_between_integers(),
    };
    line.split(move |&other| other == byte || other == b' ' || other == b'\t').filter(|field| !field.is_empty())
}

/// The other format of graphs of a file with this first line, and the command that writes its edges, if there is one. `first` has the
/// first lines.
fn other_format(line: &[u8], first: &[&[u8]]) -> Option<(&'static str, Option<Conversion>)> {
    let text = String::from_utf8_lossy(line).to_ascii_lowercase();
    let all: Vec<String> = first.iter().map(|line| String::from_utf8_lossy(line).to_ascii_lowercase()).collect();
    let any_has = |part: &str| all.iter().any(|line| line.contains(part));
    let begins_with_one_of = |starts: &[&str]| starts.iter().any(|start| text.starts_with(start));
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let (name, conversion) = match words[..] {
        _ if is_triple(line) => ("N-Triples of RDF", Conversion::NTriplesToEdges),
        _ if text.starts_with('<') && any_has("<graphml") => ("GraphML", Conversion::GraphMlToEdges),
        _ if text.starts_with('<') && any_has("<gexf") => ("GEXF", Conversion::GexfToEdges),
        _ if begins_with_one_of(&["<?xml", "<!doctype"]) => return Some(("XML", None)),
        _ if begins_with_one_of(&["[(", "{("]) => ("a list of Python", Conversion::ListToText),
        [word] if word.len() == 5 && word.starts_with("sep=") => {
            ("text whose first line tells Excel the separator", Conversion::RemoveHeader)
        }
        _ if text.starts_with("{\"") && first.len() > 1 && first.iter().all(|line| line.starts_with(b"{")) => {
            ("JSON with an object in each line", Conversion::JsonLinesToText)
        }
        _ if text == "{" || text == "[" || begins_with_one_of(&["{\"", "[{", "[["]) => ("JSON", Conversion::JsonToText),
        ["graph", "["] | ["graph["] => ("GML", Conversion::GmlToEdges),
        ["creator", ..] if all.iter().any(|line| line == "graph" || line.starts_with("graph [")) => {
            ("GML", Conversion::GmlToEdges)
        }
        ["*vertices" | "*network", ..] => ("a network of Pajek", Conversion::PajekToEdges),
        ["graph" | "digraph" | "strict", .., "{"] | ["graph{" | "digraph{"] => {
            ("a graph of Graphviz", Conversion::DotToEdges)
        }
        ["p", "sp" | "edge" | "col" | "max" | "min", _, _] => ("a graph of DIMACS", Conversion::DimacsToEdges),
        ["c", ..] if all.iter().any(|line| line.starts_with("p ")) => ("a graph of DIMACS", Conversion::DimacsToEdges),
        _ => return None,
    };
    Some((name, Some(conversion)))
}

/// Whether a line is a triple of RDF: `<subject> <predicate> object .`
fn is_triple(line: &[u8]) -> bool {
    let mut fields = line.split(|&byte| byte == b' ' || byte == b'\t').filter(|field| !field.is_empty());
    let (Some(subject), Some(predicate)) = (fields.next(), fields.next()) else {
        return false;
    };
    (is_iri(subject) || subject.starts_with(b"_:")) && is_iri(predicate) && line.ends_with(b".")
}

fn is_iri(field: &[u8]) -> bool {
    field.starts_with(b"<") && field.ends_with(b">")
}
