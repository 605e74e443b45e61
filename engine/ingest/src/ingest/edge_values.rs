//! The values of an edge, its weight and its features: how records hold them, and how parallel edges merge them.

use std::cmp::Ordering;

use grappa_formats::{
    FormatError,
    features::FeatureLayout,
    manifest::{FeatureDtype, SelfLoops},
    schema::{Column, Schema},
    time_axis::TimeUnit,
};
use grappa_input::EdgeSource;
use grappa_io::{Error, Result, heap, text::printable};

use crate::ingest::{edge_ingest::EdgeIngest, merge::Merge, plan::SORT_COST};

#[derive(Debug, Clone, PartialEq)]
pub struct EdgeValues {
    pub shape: ValueShape,
    /// Whether the first value is the weight.
    pub weighted: bool,
    /// The unit of times, if edges have times.
    pub time_unit: Option<TimeUnit>,
    /// The layout of the features, if there are any.
    pub features: Option<FeatureLayout>,
    /// The columns that the features come from. Empty if they have no names.
    pub columns: Vec<Column>,
    /// The names of the features. Empty if they have none.
    names: Vec<String>,
    /// How parallel edges merge each value. Empty if they are not merged.
    rules: Vec<Merge>,
}

impl EdgeValues {
    /// No values, whatever the input has.
    pub fn none() -> Self {
        Self {
            shape: ValueShape { width: 0, is_timed: false, is_ordered: false },
            weighted: false,
            time_unit: None,
            features: None,
            columns: Vec::new(),
            names: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// The values of the edges of `source`.
    ///
    /// # Errors
    /// If the options contradict each other, or parallel edges are merged and it is not known how.
    pub fn from_source(edges: &EdgeIngest, source: &EdgeSource) -> Result<Self> {
        let (weighted, width) = (source.weighted(), source.features());
        let schema = Schema { edge_features: source.feature_columns(), ..Schema::default() };
        let names = schema.edge_feature_names();
        let time_unit = time_unit(edges, source)?;
        let rules = rules(edges, source, &schema.edge_features)?;
        if let Err(FormatError::Invalid { problem, .. }) = schema.check() {
            return Err(Error::conflict(problem, "rename columns of the edges, so that each has a name of its own"));
        }
        let dtype = match edges.form.feature_dtype {
            Some(_) if width == 0 => {
                return Err(Error::conflict(
                    "--edge-feature-dtype was given, but the edges have no features",
                    "name them with --edge-features or --edge-features-from",
                ));
            }
            Some(dtype) => dtype,
            None if source.has_f16_features() => FeatureDtype::F16,
            None => FeatureDtype::F32,
        };
        Ok(Self {
            shape: ValueShape {
                width: usize::from(weighted) + width,
                is_timed: time_unit.is_some(),
                is_ordered: rules.iter().any(|rule| rule.is_ordered()),
            },
            weighted,
            time_unit,
            features: (width > 0).then(|| FeatureLayout::new(dtype, width as u32)),
            columns: schema.edge_features,
            names,
            rules,
        })
    }

    /// The value of a column in the edge that `edges` become, which are sorted: the range of parallel edges in `records`.
    pub fn merged(&self, records: &SortedRecords<'_>, edges: std::ops::Range<usize>, column: usize) -> f32 {
        let values = edges.clone().map(|edge| records.value(edge, column));
        match self.rules[column] {
            Merge::Sum => values.map(f64::from).sum::<f64>() as f32,
            Merge::Mean => (values.map(f64::from).sum::<f64>() / edges.len() as f64) as f32,
            Merge::Min => values.fold(f32::INFINITY, f32::min),
            Merge::Max => values.fold(f32::NEG_INFINITY, f32::max),
            Merge::First => records.value(edges.min_by_key(|&edge| records.order(edge)).expect("an edge"), column),
            Merge::Last => records.value(edges.max_by_key(|&edge| records.order(edge)).expect("an edge"), column),
        }
    }

    pub fn name(&self, column: usize) -> String {
        if self.weighted && column == 0 {
            return "weight".to_owned();
        }
        let feature = column - usize::from(self.weighted);
        match self.names.get(feature) {
            Some(name) => printable(name).to_string(),
            None => format!("edge feature {}", feature + 1),
        }
    }
}

/// The unit of the times of edges, if they have times.
///
/// # Errors
/// If options change edges in a way that leaves the time of an edge unknown.
fn time_unit(edges: &EdgeIngest, source: &EdgeSource) -> Result<Option<TimeUnit>> {
    let Some(column) = &source.options().columns.time else { return Ok(None) };
    if edges.options.dedup {
        return Err(Error::conflict(
            "--dedup merges parallel edges, and edges with times are events of their own",
            "omit --dedup, or omit --time",
        ));
    }
    if edges.options.self_loops == SelfLoops::Add {
        return Err(Error::conflict(
            "--self-loops add gives each node an edge from itself, which would have no time",
            "omit --self-loops, or omit --time",
        ));
    }
    // Without edges, any unit does.
    Ok(Some(column.unit.unwrap_or(TimeUnit::Integer)))
}

/// How parallel edges merge each value; nothing if they are not merged. All dimensions of a column merge alike.
fn rules(edges: &EdgeIngest, source: &EdgeSource, columns: &[Column]) -> Result<Vec<Merge>> {
    if !edges.options.dedup {
        return match edges.merge.first() {
            Some(option) => Err(Error::conflict(
                format!("--merge {option} was given, but parallel edges are not merged"),
                "add --dedup, or omit --merge",
            )),
            None => Ok(Vec::new()),
        };
    }
    let listed = &edges.form.columns.features;
    let numbers: Vec<String> = (1..=source.features()).map(|number| number.to_string()).collect();
    let names = if listed.is_empty() { &numbers } else { listed };
    let mut rules: Vec<Option<Merge>> = vec![None; names.len()];
    let mut weight = Merge::Sum;
    for option in &edges.merge {
        let Some(wanted) = &option.column else { continue };
        let is_called =
            |at: usize| names[at] == *wanted || columns.get(at).is_some_and(|column| column.name == *wanted);
        match (0..names.len()).find(|&at| is_called(at)) {
            Some(feature) => rules[feature] = Some(option.how),
            None if source.weighted() && wanted == "weight" => weight = option.how,
            None => {
                let weight = source.weighted().then_some("weight");
                let known: Vec<&str> = weight.into_iter().chain(names.iter().map(String::as_str)).collect();
                return Err(Error::conflict(
                    format!("--merge {option}: edges have no values called {}", printable(wanted)),
                    match known.is_empty() {
                        true => "omit --merge: edges have neither weights nor features".to_owned(),
                        false => format!("give one of {}", known.join(", ")),
                    },
                ));
            }
        }
    }
    if let Some(all) = edges.merge.iter().find(|option| option.column.is_none()) {
        rules.iter_mut().for_each(|rule| *rule = rule.or(Some(all.how)));
        if !edges.merge.iter().any(|option| option.column.as_deref() == Some("weight")) {
            weight = all.how;
        }
    }
    let unknown = (0..names.len()).filter(|&feature| rules[feature].is_none());
    let unknown: Vec<&str> = unknown.map(|feature| names[feature].as_str()).collect();
    if let Some(first) = unknown.first() {
        return Err(Error::conflict(
            format!("--dedup merges parallel edges, and how is not known for the edge features {}", unknown.join(", ")),
            format!(
                "add --merge {first}=sum and so on; the words are sum, mean, first, last, min and max, and a word without a \
                 name is for all features"
            ),
        ));
    }
    let dims = columns.iter().map(|column| column.encoding.dim() as usize).chain(std::iter::repeat(1));
    let features = rules.into_iter().flatten().zip(dims).flat_map(|(rule, dim)| std::iter::repeat_n(rule, dim));
    Ok(source.weighted().then_some(weight).into_iter().chain(features).collect())
}

/// How the words of a record hold the values of its edge: two values in a word, the first one in its low half, then a word for its time, if
/// edges have times, and then a word for the place of the edge in the input, if merging depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueShape {
    /// Values of an edge.
    pub width: usize,
    /// Whether there is a word for the time.
    pub is_timed: bool,
    /// Whether there is a word for the place in the input.
    pub is_ordered: bool,
}

impl ValueShape {
    /// Words of the values.
    pub fn words(self) -> usize {
        self.width.div_ceil(2) + usize::from(self.is_timed) + usize::from(self.is_ordered)
    }

    /// Whether a single value is the payload of its key, which sorts faster than a whole record.
    pub fn is_payload(self) -> bool {
        self.width == 1 && self.words() == 1
    }

    /// Bytes of memory of a record of a key and these values while it is sorted. Records of more than a value are sorted by their
    /// keys and a number each, and an adjacency list, which may have all of them, is encoded twice.
    pub fn sort_cost(self) -> u64 {
        let words = 1 + self.words() as u64;
        match self.words() == 0 || self.is_payload() {
            true => words * SORT_COST,
            false if self.is_timed => words * (8 + 16) + 20 + TIME_COST,
            false => words * (8 + 16) + 20,
        }
    }

    /// Writes the values of an edge, its time, and its place in the input, to the words of a record.
    #[inline]
    pub fn write(self, values: &[f32], time: i64, place: u64, words: &mut [u64]) {
        for (word, values) in words.iter_mut().zip(values.chunks(2)) {
            let high = values.get(1).map_or(0, |value| value.to_bits());
            *word = u64::from(values[0].to_bits()) | u64::from(high) << 32;
        }
        let mut at = self.width.div_ceil(2);
        if self.is_timed {
            words[at] = time.cast_unsigned();
            at += 1;
        }
        if self.is_ordered {
            words[at] = place;
        }
    }

    /// The time in the words of a record.
    #[inline]
    pub fn time(self, words: &[u64]) -> i64 {
        words[self.width.div_ceil(2)].cast_signed()
    }

    /// Appends the values in the words of a record.
    pub fn read(self, words: &[u64], values: &mut Vec<f32>) {
        values.extend((0..self.width).map(|at| value_at(words, at)));
    }
}

/// A value in the words of a record.
#[inline]
fn value_at(words: &[u64], at: usize) -> f32 {
    f32::from_bits(bits_at(words, at))
}

/// The 32 bits of a value.
#[inline]
fn bits_at(words: &[u64], at: usize) -> u32 {
    (words[at / 2] >> (32 * (at % 2))) as u32
}

/// Sorted records: their keys, and what came with each key.
#[derive(Clone, Copy)]
pub struct SortedRecords<'a> {
    pub shape: ValueShape,
    /// The keys, ascending.
    pub keys: &'a [u64],
    /// What came with each key: its value, or the number of its record.
    pub payload: &'a [u32],
    /// All records, a key and values each, in the order in which they were read. Unused if the payload is the value.
    pub records: &'a [u64],
}

impl SortedRecords<'_> {
    #[inline]
    pub fn value(&self, edge: usize, column: usize) -> f32 {
        match self.shape.is_payload() {
            true => f32::from_bits(self.payload[edge]),
            false => value_at(words_of(self.shape, self.records, self.payload[edge]), column),
        }
    }

    /// The time of an edge.
    #[inline]
    pub fn time(&self, edge: usize) -> i64 {
        self.shape.time(words_of(self.shape, self.records, self.payload[edge]))
    }

    fn order(&self, edge: usize) -> u64 {
        let words = words_of(self.shape, self.records, self.payload[edge]);
        *words.last().expect("records that are ordered have a place")
    }
}

/// The words of a record after its key.
#[inline]
fn words_of(shape: ValueShape, records: &[u64], record: u32) -> &[u64] {
    let length = 1 + shape.words();
    &records[record as usize * length + 1..][..length - 1]
}

/// Sorts the numbers of records with equal keys by the values of their records, and then by their places, so that the result does not
/// depend on the order of the records.
pub fn sort_equal_keys(shape: ValueShape, keys: &[u64], numbers: &mut [u32], records: &[u64]) {
    let mut start = 0;
    for equal in keys.chunk_by(|a, b| a == b) {
        if equal.len() > 1 {
            numbers[start..start + equal.len()].sort_unstable_by(|&a, &b| compare_values(shape, records, a, b));
        }
        start += equal.len();
    }
}

/// Compares records by their values, and then by their places.
fn compare_values(shape: ValueShape, records: &[u64], a: u32, b: u32) -> Ordering {
    let [a, b] = [a, b].map(|record| words_of(shape, records, record));
    let by_value = (0..shape.width).map(|at| bits_at(a, at)).cmp((0..shape.width).map(|at| bits_at(b, at)));
    by_value.then_with(|| a.last().cmp(&b.last()))
}

/// Bytes of memory of an edge while its adjacency list is sorted by time.
const TIME_COST: u64 = size_of::<(i64, u64, u32)>() as u64;

/// Sorts the edges of each destination by time, then by source, and then as [`sort_equal_keys`] does. `keys` ascend, and have the source in
/// their low `source_bits`; they and the numbers of their records are sorted together.
pub fn sort_by_time(
    shape: ValueShape,
    source_bits: u32,
    keys: &mut [u64],
    numbers: &mut [u32],
    records: &[u64],
) -> Result<()> {
    let mut edges: Vec<(i64, u64, u32)> = Vec::new();
    let mut start = 0;
    while start < keys.len() {
        let destination = keys[start].unbounded_shr(source_bits);
        let of_list = keys[start..].partition_point(|key| key.unbounded_shr(source_bits) == destination);
        let (keys, numbers) = (&mut keys[start..start + of_list], &mut numbers[start..start + of_list]);
        start += of_list;
        edges.clear();
        heap::reserve_to(&mut edges, of_list, "sorting an adjacency list by time")?;
        let of_records = keys.iter().zip(&*numbers);
        edges.extend(of_records.map(|(&key, &number)| (shape.time(words_of(shape, records, number)), key, number)));
        edges.sort_unstable_by(|a, b| {
            (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| compare_values(shape, records, a.2, b.2))
        });
        for ((key, number), edge) in keys.iter_mut().zip(numbers).zip(&edges) {
            (*key, *number) = (edge.1, edge.2);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_hold_values_and_places() {
        for (width, is_timed, is_ordered, words) in [
            (0, false, false, 0),
            (1, false, false, 1),
            (2, false, false, 1),
            (3, false, true, 3),
            (4, false, true, 3),
            (0, true, false, 1),
            (1, true, false, 2),
            (2, true, true, 3),
        ] {
            let shape = ValueShape { width, is_timed, is_ordered };
            assert_eq!(shape.words(), words);
            let values: Vec<f32> = (0..width).map(|at| at as f32 - 1.5).collect();
            let mut record = vec![u64::MAX; words];
            shape.write(&values, -9, 77, &mut record);
            let mut read = Vec::new();
            shape.read(&record, &mut read);
            assert_eq!(read, values);
            assert!(!is_ordered || record.last() == Some(&77));
            assert!(!is_timed || shape.time(&record) == -9);
            assert_eq!(shape.is_payload(), (width, words) == (1, 1));
        }
    }

    #[test]
    fn parallel_edges_merge_exactly_and_in_the_order_of_the_input() {
        let shape = ValueShape { width: 6, is_timed: false, is_ordered: true };
        let values = EdgeValues { shape, rules: Merge::ALL.to_vec(), ..EdgeValues::none() };
        // Two edges of key 5, and many of key 7, whose sum in f32 would be 100958.34.
        let mut edges = vec![(5, -2.0, 9), (5, 0.5, 3)];
        edges.extend((0..1_000_000).map(|at| (7, 0.1, 1_000_000 - at)));
        let mut records = Vec::new();
        for &(key, value, place) in &edges {
            let mut words = [0; 5];
            words[0] = key;
            shape.write(&[value; 6], 0, place, &mut words[1..]);
            records.extend(words);
        }
        let keys: Vec<u64> = edges.iter().map(|edge| edge.0).collect();
        let mut numbers: Vec<u32> = (0..edges.len() as u32).rev().collect();
        numbers.sort_by_key(|&number| keys[number as usize]);
        sort_equal_keys(shape, &keys, &mut numbers, &records);
        // By bits, positive numbers come before negative ones.
        assert_eq!(numbers[..2], [1, 0]);
        let sorted = SortedRecords { shape, keys: &keys, payload: &numbers, records: &records };
        let merged = |edges: std::ops::Range<usize>| -> Vec<f32> {
            (0..6).map(|column| values.merged(&sorted, edges.clone(), column)).collect()
        };
        assert_eq!(merged(0..2), [-1.5, -0.75, 0.5, -2.0, -2.0, 0.5]);
        assert_eq!(merged(2..edges.len()), [100_000.0, 0.1, 0.1, 0.1, 0.1, 0.1]);
    }

    #[test]
    fn lists_are_sorted_by_time_then_source_then_value() {
        let shape = ValueShape { width: 1, is_timed: true, is_ordered: false };
        // Two destinations, in bit 4 and above.
        let edges = [(0x13, 5, 1.0), (0x11, 9, 0.0), (0x12, 5, 2.0), (0x12, 5, 1.0), (0x2f, -7, 0.5), (0x21, 0, 0.5)];
        let mut records = Vec::new();
        for (key, time, value) in edges {
            let mut words = [key, 0, 0];
            shape.write(&[value], time, 0, &mut words[1..]);
            records.extend(words);
        }
        let mut numbers: Vec<u32> = (0..edges.len() as u32).collect();
        numbers.sort_by_key(|&number| edges[number as usize].0);
        let mut keys: Vec<u64> = numbers.iter().map(|&number| edges[number as usize].0).collect();
        sort_by_time(shape, 4, &mut keys, &mut numbers, &records).unwrap();
        assert_eq!(keys, [0x12, 0x12, 0x13, 0x11, 0x2f, 0x21]);
        let sorted = SortedRecords { shape, keys: &keys, payload: &numbers, records: &records };
        let found: Vec<_> = (0..6).map(|edge| (sorted.time(edge), sorted.value(edge, 0))).collect();
        assert_eq!(found, [(5, 1.0), (5, 2.0), (5, 1.0), (9, 0.0), (-7, 0.5), (0, 0.5)]);
    }
}
