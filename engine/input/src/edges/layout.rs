//! Detects the columns, the separator and the header of a text file from its first lines.

use std::{path::Path, sync::Arc};

use grappa_io::{Error, Position, Result};

use super::{
    BadEdge, Comments, EdgeFormat, EdgeSourceOptions, HeaderLine, TextBatch,
    batch::EdgeOrder,
    encoded::EdgeEncoder,
    fields::{LineForm, NumberFields, edge_of, is_comment, keys_of, selected_edge_of},
    foreign::{refuse_adjacency_lists, refuse_other_formats, third_column_has_ids},
    matrix_market::Matrix,
};
use crate::{
    columns::{EdgeColumns, is_header_of_edges, names_both_ends, names_one_of},
    conversions::Conversion,
    extent::{Compression, Extent},
    file::InputFile,
    line_reader::{LINE_BYTES_MAX, Line, Lines},
    messages::shown,
    separator::{Separator, unquoted},
    table::{Form, form_of},
};

/// The most lines of data to search for one that shows the columns, and the most bytes.
const SNIFFED_LINES_MAX: usize = 1000;
const SNIFFED_BYTES_MAX: usize = 256 << 10;

/// Larger integers are not all exact as `f32`. Times in seconds are larger.
const EXACT_MAX: f32 = (1 << f32::MANTISSA_DIGITS) as f32;

#[derive(Debug, Clone)]
pub(super) struct TextLayout {
    /// Offset of the first line with data, after a byte order mark, comments and a header.
    pub data_start: u64,
    pub form: LineForm,
    /// The matrix, if the lines are its entries.
    pub matrix: Option<Matrix>,
    pub comments: u64,
    /// The names of the columns, if there is a header.
    pub header: Option<Vec<String>>,
    /// Number and text of the first line, and how it is read, which is one of [`READ_AS`], if the user should know it.
    pub first_line: Option<(u64, String, &'static str)>,
}

/// A header that may be an edge between strings.
const IS_HEADER: &str = "is read as a header, not as an edge; if it is an edge, give --header no";
/// An edge between strings that may be a header.
const IS_EDGE: &str =
    "is read as an edge; give --header yes if it has column names, or --header no to say that it has not";
/// A header that names the targets first.
const TARGETS_FIRST: &str = "names the targets first, so edges go from the second column to the first; correct it if they do not, or give \
    --header no if it is an edge";
/// An edge with a weight that is too large for an exact `f32`.
const LARGE_WEIGHT: &str = "has a third column, which is stored as edge weights of type f32; if it has others, such as times, leave it \
    out: --weight none";

/// How a first line that may be meant in another way is read, for messages after the line.
pub(super) const READ_AS: [&str; 4] = [IS_HEADER, IS_EDGE, TARGETS_FIRST, LARGE_WEIGHT];

#[derive(Default)]
struct Head {
    /// The first comments before the data, and their number.
    leading: Vec<Line>,
    comments: u64,
    /// The first lines of data. A header is among them.
    data: Vec<Line>,
    /// Whether these are all lines of data.
    is_whole: bool,
}

impl Head {
    fn read(file: &Arc<InputFile>, compression: Compression, options: &EdgeSourceOptions) -> Result<Self> {
        let mut lines = Lines::new(Extent::whole(file, compression).stream()?, LINE_BYTES_MAX);
        let (mut head, mut bytes, mut leading_bytes) = (Self::default(), 0, 0);
        while let Some(line) = lines.next_line()? {
            let text = line.text();
            if text.is_empty() {
                continue;
            }
            if head.data.is_empty() && is_comment(text) && options.comments != Comments::No {
                head.comments += 1;
                leading_bytes += line.bytes.len();
                if head.leading.is_empty()
                    || head.leading.len() < SNIFFED_LINES_MAX && leading_bytes < SNIFFED_BYTES_MAX
                {
                    head.leading.push(line);
                }
                continue;
            }
            bytes += line.bytes.len();
            head.data.push(line);
            if head.data.len() == SNIFFED_LINES_MAX || bytes >= SNIFFED_BYTES_MAX {
                return Ok(head);
            }
        }
        head.is_whole = true;
        Ok(head)
    }
}

fn mark_of(line: &Line) -> usize {
    match line.number == 1 && line.bytes.starts_with(b"\xef\xbb\xbf") {
        true => 3,
        false => 0,
    }
}

impl TextLayout {
    /// The bytes of a block: an entry of a symmetric matrix is two edges.
    pub fn block_bytes(&self, bytes_max: usize) -> usize {
        let edges = if self.matrix.is_some_and(|matrix| matrix.symmetric) { 2 } else { 1 };
        (bytes_max / edges).max(1)
    }

    /// Reads up to the first well-formed edge. None if there are only comments. `csv`: the file is called so.
    pub fn sniff(
        file: &Arc<InputFile>,
        compression: Compression,
        csv: bool,
        options: &EdgeSourceOptions,
    ) -> Result<Option<Self>> {
        let head = Head::read(file, compression, options)?;
        Sniffer { path: file.path(), csv, options, head: &head }.layout()
    }
}

struct Sniffer<'a> {
    path: &'a Path,
    csv: bool,
    options: &'a EdgeSourceOptions,
    head: &'a Head,
}

impl Sniffer<'_> {
    fn layout(&self) -> Result<Option<TextLayout>> {
        let Self { path, options, head, .. } = *self;
        if let Some(banner) = head.leading.first().filter(|line| Matrix::has_banner(&line.bytes)) {
            let (matrix, form) = Matrix::of_head(banner, head.data.first(), path, options)?;
            if head.data.len() < 2 {
                matrix.check(0, path)?;
            }
            return Ok(head.data.get(1).map(|entry| TextLayout {
                data_start: entry.offset,
                form,
                matrix: Some(matrix),
                comments: head.comments,
                header: None,
                first_line: None,
            }));
        }
        let all: Vec<&[u8]> = head.data.iter().map(Line::text).collect();
        refuse_other_formats(&all, path)?;
        let separator = self.separator(&all)?;
        self.check_comments(&all, separator)?;
        let Some(first) = head.data.first() else {
            return Ok(None);
        };
        let (mut header, note) = self.first_line(all[0], separator);
        let data = &head.data[usize::from(header.is_some())..];
        let texts = &all[usize::from(header.is_some())..];
        if header.is_none() && !options.columns.is_given() {
            refuse_adjacency_lists(texts, head.is_whole, separator, options.are_strings(), path)?;
        }
        if let Some(names) = &mut header {
            let last = names.iter().rposition(|name| !name.is_empty());
            names.truncate(last.map_or(0, |last| last + 1));
        }
        let empty_columns = empty_columns(texts, separator, header.as_ref().map_or(2, Vec::len));
        let columns = match &header {
            None => None,
            Some(names) => {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let columns = EdgeColumns::named(&names, true, &options.columns);
                Some(columns.map_err(|problem| self.refused(first, problem))?)
            }
        };
        let mut first_bad = None;
        for (line, text) in data.iter().zip(texts) {
            match self.form(line, text, separator, empty_columns, header.as_deref(), columns.as_ref()) {
                Ok((form, weight)) => {
                    let is_first = line.number == first.number;
                    let is_auto = options.are_strings() && options.header == HeaderLine::Auto;
                    let note = match note {
                        None if is_first && is_auto && may_be_names(text, &form) => Some(IS_EDGE),
                        None if header.is_some() && form.targets_first() && !options.columns.is_given() => {
                            Some(TARGETS_FIRST)
                        }
                        None if weight.is_some_and(|weight| weight.abs() > EXACT_MAX)
                            && options.columns.weight.is_none() =>
                        {
                            Some(LARGE_WEIGHT)
                        }
                        note => note,
                    };
                    let is_unnamed = header.is_none() && !options.columns.is_given();
                    if form.weighted() && is_unnamed && third_column_has_ids(texts, separator) {
                        let problem = "the third column has ids as the first two have; give --src 1 --dst 3 for triples of subject, relation \
                                    and object, --src 1 --dst 2 to leave it out, or --weight 3 if it has the weights of the edges";
                        return Err(self.refused(line, problem.to_owned()));
                    }
                    let noted = if note == Some(LARGE_WEIGHT) { line } else { first };
                    return Ok(Some(TextLayout {
                        data_start: data[0].offset + mark_of(&data[0]) as u64,
                        form,
                        matrix: None,
                        comments: head.comments,
                        header,
                        first_line: note.map(|read_as| (noted.number, shown(noted.text()), read_as)),
                    }));
                }
                Err(error) => {
                    first_bad.get_or_insert(error);
                }
            }
        }
        first_bad.map_or(Ok(None), Err)
    }

    fn refused(&self, line: &Line, problem: String) -> Error {
        // Line ends of old Macs make one line of many.
        if line.bytes.contains(&b'\r') {
            return self.bad(line, BadEdge::NotInteger);
        }
        Error::input(self.path, Position::Line(line.number), problem)
    }

    /// The error about a line like which all others probably are.
    fn bad(&self, line: &Line, bad: BadEdge) -> Error {
        let bytes = &line.bytes[mark_of(line)..];
        let message = match bad {
            BadEdge::NotANode(end) => BadEdge::not_a_node(self.options, end, &format!("on the line {}", shown(bytes))),
            bad => bad.message_of_file(bytes, self.path),
        };
        bad.error(self.options, self.path, Position::Line(line.number), bytes, message)
    }

    /// The separator that the user names, or the separator of the first lines.
    fn separator(&self, data: &[&[u8]]) -> Result<Separator> {
        let options = self.options;
        if let Some(separator) = options.separator {
            return Ok(separator);
        }
        if options.format == EdgeFormat::Csv {
            return Ok(Separator::Comma);
        }
        let found = match data {
            [] => Separator::of_lines(self.head.leading.iter().map(Line::text), "--separator"),
            _ => Separator::of_lines(data.iter().copied(), "--separator"),
        };
        found.map_err(|problem| Error::input(self.path, Position::Whole, problem))
    }

    /// Fails if a line before the data that begins as a comment does may be an edge between strings.
    fn check_comments(&self, data: &[&[u8]], separator: Separator) -> Result<()> {
        let options = self.options;
        if !options.are_strings() || options.comments != Comments::Auto {
            return Ok(());
        }
        let width = data.first().and_then(|line| separator.fields(line).ok()).map(|fields| fields.len());
        for line in &self.head.leading {
            let text = line.text();
            let after = &text[text.iter().take_while(|byte| b"#%".contains(byte)).count()..];
            let Ok(fields) = separator.fields(after) else { continue };
            let names: Vec<_> = fields.iter().map(|field| String::from_utf8_lossy(field)).collect();
            let names: Vec<&str> = names.iter().map(|name| &**name).collect();
            let fits = match width {
                Some(width) => names.len() == width,
                None => matches!(names.len(), 2 | 3),
            };
            let is_word = after.first().is_some_and(|byte| !b" \t!".contains(byte));
            if fits && is_word && !names_both_ends(&names) {
                let problem = format!(
                    "this line may be a comment, or an edge between strings: {}; give --comments no if it is an edge, or --comments \
                     yes if it is a comment",
                    shown(text)
                );
                return Err(self.refused(line, problem));
            }
        }
        Ok(())
    }

    /// The names of the columns, if the first line of data is a header, and how it is read.
    fn first_line(&self, text: &[u8], separator: Separator) -> (Option<Vec<String>>, Option<&'static str>) {
        let options = self.options;
        let fields = separator.fields(text).unwrap_or_default();
        let names: Vec<String> =
            fields.iter().map(|field| String::from_utf8_lossy(unquoted(field)).into_owned()).collect();
        let fields: Vec<&str> = names.iter().map(String::as_str).collect();
        let is_given = names_one_of(&fields, options.columns.all());
        let is_named = names_both_ends(&fields);
        let (is_header, note) = match (options.header, options.are_strings()) {
            (HeaderLine::Yes, _) => (true, None),
            (HeaderLine::No, _) => (false, None),
            (HeaderLine::Auto, _) if is_given => (true, None),
            (HeaderLine::Auto, false) => (is_named || self.csv && is_header_of_edges(&fields), None),
            // Words that are separated by spaces rarely have a header.
            (HeaderLine::Auto, true) if is_named && separator == Separator::Spaces => (false, Some(IS_EDGE)),
            (HeaderLine::Auto, true) if is_named => (true, Some(IS_HEADER)),
            (HeaderLine::Auto, true) => (false, None),
        };
        (is_header.then_some(names), note)
    }

    /// Whether the first values of these columns are numbers alone.
    fn are_numbers(&self, columns: &[usize], separator: Separator, has_header: bool) -> bool {
        let lines = self.head.data.iter().skip(usize::from(has_header)).take(SHOWN_LINES);
        let rows: Vec<Vec<_>> = lines.filter_map(|line| separator.fields(line.text()).ok()).collect();
        columns.iter().all(|&column| {
            let mut values = rows.iter().filter_map(|row| row.get(column));
            values.all(|value| matches!(form_of(&String::from_utf8_lossy(unquoted(value))), Form::Number(_)))
        })
    }

    /// The form of all lines, if this one is an edge, and the weight of the edge between integers.
    fn form(
        &self,
        line: &Line,
        text: &[u8],
        separator: Separator,
        empty_columns: usize,
        header: Option<&[String]>,
        columns: Option<&EdgeColumns>,
    ) -> Result<(LineForm, Option<f32>)> {
        let options = self.options;
        let are_strings = options.are_strings();
        let is_strict = are_strings || options.columns.is_given() || header.is_some_and(|names| names.len() > 3);
        let width = match is_strict {
            true => separator.fields(text).map_err(|open| self.bad(line, open.into()))?.len(),
            false => NumberFields::from_line(text, separator).count(),
        };
        let columns = match (header, columns) {
            (Some(names), Some(_)) if names.len() + empty_columns != width => {
                let remedy = match names.len() + 1 == width {
                    true => format!(
                        "; if the first column has the names of rows, give it a name, which is then left out with --src and --dst: {}",
                        Conversion::NameFirstColumn.command(self.path).replacen(
                            "/row/",
                            &format!("/row{}/", separator.in_sed()),
                            1
                        )
                    ),
                    false => String::new(),
                };
                let problem = format!("the header has {} columns, but this line has {width}{remedy}", names.len());
                return Err(self.refused(line, problem));
            }
            (_, Some(columns)) => columns.clone(),
            (_, None) if width < 2 + empty_columns => {
                let bad = BadEdge::Columns { expected: 2, found: width };
                return Err(self.bad(line, bad));
            }
            (_, None) => EdgeColumns::numbered(width - empty_columns, &options.columns)
                .map_err(|problem| self.refused(line, problem))?,
        };
        let encoder = match EdgeEncoder::from_options(options) {
            None if !self.are_numbers(&columns.features, separator, header.is_some()) => {
                Some(Arc::new(EdgeEncoder::unfitted()))
            }
            encoder => encoder.filter(|_| !columns.features.is_empty()),
        };
        let mut form = LineForm::new(separator, columns, encoder, width, empty_columns);
        form.guards_spaces = are_strings && separator == Separator::Spaces && options.separator.is_none();
        if are_strings {
            match keys_of(text, &form, options.key_form(), false, &mut TextBatch::default()) {
                Ok(()) | Err(BadEdge::OtherRelation) => return Ok((form, None)),
                Err(bad) => return Err(self.bad(line, bad)),
            }
        }
        if form.is_plain() {
            let edge = edge_of(text, &form, options.limits()).map_err(|bad| self.bad(line, bad))?;
            return Ok((form, edge.map(|(_, _, weight)| weight)));
        }
        let mut values = Vec::new();
        let edge = selected_edge_of(text, &form, options.limits(), &mut values, &mut EdgeOrder::default())
            .map_err(|bad| self.bad(line, bad))?;
        let weight = edge.and_then(|_| values.first().copied().filter(|_| form.weighted()));
        Ok((form, weight))
    }
}

/// The lines that show whether columns of features are numbers.
const SHOWN_LINES: usize = 100;

/// The number of last columns that are empty in all lines, after the first `named` columns.
fn empty_columns(lines: &[&[u8]], separator: Separator, named: usize) -> usize {
    lines
        .iter()
        .map(|line| {
            let fields = separator.fields(line).unwrap_or_default();
            let ends = fields.iter().rev().take_while(|field| field.is_empty()).count();
            ends.min(fields.len().saturating_sub(named))
        })
        .min()
        .unwrap_or(0)
}

/// Whether a line of string ids that is read as an edge may have column names instead.
fn may_be_names(line: &[u8], form: &LineForm) -> bool {
    // A third column is a number, and words that are separated by blanks rarely have a header. The usual names with digits are known.
    let has_digits = line.iter().any(u8::is_ascii_digit);
    form.width == 2 && form.separator != Separator::Spaces && !has_digits
}
