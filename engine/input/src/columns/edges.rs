//! The columns of edges.

use grappa_formats::time_axis::TimeUnit;

use super::{
    NONE, find, in_shell, listed,
    names::{SOURCE_NAMES, TARGET_NAMES, WEIGHT_NAME},
};

/// An end of edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeEnd {
    /// Where edges begin.
    Source,
    /// Where edges end.
    Target,
}

impl EdgeEnd {
    /// The role of its column.
    pub(crate) fn role(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Target => "target",
        }
    }
}

/// The columns of edges that the user names: by name, or by number, from 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EdgeColumnOptions {
    /// The column of sources.
    pub source: Option<String>,
    /// The end of an edge whose id is the number of the row, from 0, so that no column has it. Text has no such edges.
    pub row_end: Option<EdgeEnd>,
    /// The column of targets.
    pub target: Option<String>,
    /// The column of weights, or `none`.
    pub weight: Option<String>,
    /// The columns of edge features.
    pub features: Vec<String>,
    /// The column with the order of the edges, such as their times. It may have another role, too.
    pub order: Option<String>,
    /// The column with the times of the edges. It may have another role, too.
    pub time: Option<TimeColumn<String>>,
    /// A column and the value that it has in the rows that are edges, in text. Other rows are of other relations.
    pub relation: Option<(String, String)>,
}

/// A column with times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeColumn<C> {
    /// The column: its name or number as the user says it, or its index.
    pub column: C,
    /// The unit in which the store has the times, and of integers in the column. None finds it from the first values.
    pub unit: Option<TimeUnit>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EdgeColumns {
    pub source: usize,
    pub target: usize,
    pub weight: Option<usize>,
    pub features: Vec<usize>,
    pub order: Option<usize>,
    pub time: Option<TimeColumn<usize>>,
    /// The column with the relation of each row, and the relation of the edges.
    pub relation: Option<(usize, String)>,
}

impl EdgeColumnOptions {
    /// Edges whose weights are left out.
    pub(crate) fn without_weights() -> Self {
        Self { weight: Some(NONE.to_owned()), ..Self::default() }
    }

    /// Whether an option says the role of a column.
    pub fn is_given(&self) -> bool {
        *self != Self { order: self.order.clone(), time: self.time.clone(), ..Self::default() }
    }

    /// Whether the only option is that weights are left out.
    pub(crate) fn leaves_out_weights_only(&self) -> bool {
        *self == Self { order: self.order.clone(), time: self.time.clone(), ..Self::without_weights() }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        let relation = self.relation.as_ref().map(|(column, _)| column.as_str());
        let ends = [&self.source, &self.target, &self.weight, &self.order];
        let time = self.time.as_ref().map(|time| time.column.as_str());
        relation.into_iter().chain(time).chain(ends.into_iter().flatten().chain(&self.features).map(String::as_str))
    }
}

impl EdgeColumns {
    /// The columns of the values of an edge: the weight, if there is one, then the features.
    pub fn values(&self) -> impl Iterator<Item = usize> {
        self.weight.into_iter().chain(self.features.iter().copied())
    }

    /// The columns of a table whose columns have names. `by_position`: two columns of other names are source and target.
    ///
    /// # Errors
    /// If the role of a column is not certain. The error has the options that say it.
    pub fn named(names: &[&str], by_position: bool, options: &EdgeColumnOptions) -> Result<Self, String> {
        if let Some(end) = options.row_end {
            return Self::of_rows(names, end, options);
        }
        let source = find_named(names, options.source.as_deref(), "--src")?;
        let target = find_named(names, options.target.as_deref(), "--dst")?;
        let weight = options.weight.as_deref().filter(|&weight| weight != NONE);
        let weight = find_named(names, weight, "--weight")?;
        let features = features(names, options)?;
        let [named_source, named_target] =
            [named(names, SOURCE_NAMES, target.or(weight)), named(names, TARGET_NAMES, source.or(weight))]
                .map(|column| column.filter(|_| column != weight));
        let (source, target) = match (source.or(named_source), target.or(named_target)) {
            (Some(source), Some(target)) => (source, target),
            (Some(source), None) if options.source.is_some() => {
                let others = without(names, &[Some(source), weight]);
                return Err(format!("which column has the targets is not known; add --dst with one of {others}"));
            }
            (None, Some(target)) if options.target.is_some() => {
                let others = without(names, &[Some(target), weight]);
                return Err(format!("which column has the sources is not known; add --src with one of {others}"));
            }
            _ if by_position && names.len() == 2 && weight.is_none() => (0, 1),
            _ => return Err(unknown_ends(names)),
        };
        if source == target {
            return Err(format!(
                "the column {} cannot have both the sources and the targets; give --src and --dst two columns",
                in_shell(names[source])
            ));
        }
        let are_given = options.source.is_some() && options.target.is_some();
        let is_arc = names[source].eq_ignore_ascii_case("head") && names[target].eq_ignore_ascii_case("tail");
        if is_arc && source > target && !are_given {
            let [head, tail] = [source, target].map(|column| in_shell(names[column]));
            return Err(format!(
                "an arc of a graph goes from tail to head, but a triple of a knowledge base from head to tail; give --src {tail} --dst \
                 {head}, or --src {head} --dst {tail}"
            ));
        }
        let ends = [Some(source), Some(target)];
        let weight = match (weight, &options.weight) {
            (None, None) => named(names, WEIGHT_NAME, None)
                .filter(|&column| !ends.contains(&Some(column)) && !features.contains(&column)),
            (named, _) => named,
        };
        let order = order(names, weight, options)?;
        let (time, relation) = (time(names, options)?, relation(names, options)?);
        let columns = Self { source, target, weight, features, order, time, relation };
        columns.check_features(names)?;
        let unknown = columns.left_out(names);
        if !unknown.is_empty() && !are_given && options.weight.is_none() {
            let first = in_shell(unknown[0]);
            let ends = format!("--src {} --dst {}", in_shell(names[source]), in_shell(names[target]));
            return Err(format!(
                "the use of {} beside source and target is not known; give {ends} to leave {} out{}",
                listed(&unknown, ", "),
                if unknown.len() == 1 { "it" } else { "them" },
                match weight {
                    None => format!(
                        ", {ends} --weight {first} if that is the weight of each edge, or --edge-features-from {} for features of edges",
                        listed(&unknown, ",")
                    ),
                    Some(_) => String::new(),
                }
            ));
        }
        Ok(columns)
    }

    /// The columns of a table whose rows are one end: the column of the other end stands for both.
    fn of_rows(names: &[&str], end: EdgeEnd, options: &EdgeColumnOptions) -> Result<Self, String> {
        let (rows, others, column, option) = match end {
            EdgeEnd::Source => ("sources", "targets", &options.target, "--dst"),
            EdgeEnd::Target => ("targets", "sources", &options.source, "--src"),
        };
        let Some(column) = find_named(names, column.as_deref(), option)? else {
            return Err(format!("rows are {rows}, so the column of {others} is needed; give {option}"));
        };
        let weight = find_named(names, options.weight.as_deref().filter(|&weight| weight != NONE), "--weight")?;
        let (features, time) = (features(names, options)?, time(names, options)?);
        Ok(Self { source: column, target: column, weight, features, order: None, time, relation: None })
    }

    /// The columns of a table without names. `width` is their number.
    pub fn numbered(width: usize, options: &EdgeColumnOptions) -> Result<Self, String> {
        let numbers: Vec<_> = (1..=width).map(|number| number.to_string()).collect();
        let names: Vec<&str> = numbers.iter().map(String::as_str).collect();
        if options.source.is_some() || options.target.is_some() {
            if options.source.is_none() || options.target.is_none() {
                return Err(
                    "the columns have no names, so --src and --dst are both needed, such as --src 1 --dst 2".to_owned()
                );
            }
            return Self::named(&names, false, options);
        }
        let weight = match options.weight.as_deref() {
            Some(NONE) => None,
            Some(weight) => Some(find(&names, weight, "--weight")?),
            None => {
                let is_order = options.order.as_deref() == Some("3");
                let is_time = options.time.as_ref().is_some_and(|time| time.column == "3");
                (width == 3 && options.features.is_empty() && !is_order && !is_time).then_some(2)
            }
        };
        let (order, time) = (order(&names, weight, options)?, time(&names, options)?);
        let features = features(&names, options)?;
        let columns = Self { source: 0, target: 1, weight, features, order, time, relation: None };
        columns.check_features(&names)?;
        if !columns.left_out(&names).is_empty() && width > 3 || matches!(weight, Some(0 | 1)) {
            return Err(format!(
                "expected 2 or 3 columns (source, target and, if edges have weights, a weight), found {width}; say which columns have \
                 the edges, such as --src 1 --dst 2"
            ));
        }
        Ok(columns)
    }

    /// Fails if a column of features has another role.
    fn check_features(&self, names: &[&str]) -> Result<(), String> {
        let roles =
            [(Some(self.source), "the sources"), (Some(self.target), "the targets"), (self.weight, "the weights")];
        for (at, column) in self.features.iter().enumerate() {
            let role = roles.iter().find(|(taken, _)| *taken == Some(*column));
            let reason = match role {
                Some((_, role)) => format!("has {role} already"),
                None if self.features[..at].contains(column) => "is there twice".to_owned(),
                None => continue,
            };
            return Err(format!(
                "the column {} {reason}; leave it out of --edge-features-from",
                in_shell(names[*column])
            ));
        }
        Ok(())
    }

    pub fn roles(&self, names: &[&str]) -> Vec<(&'static str, String)> {
        let ends = [(EdgeEnd::Source, self.source), (EdgeEnd::Target, self.target)];
        let ends = ends.into_iter().map(|(end, column)| (end.role(), column));
        let weight = self.weight.map(|column| ("weight", column));
        let features = self.features.iter().map(|&column| ("feature", column));
        let order = self.order.map(|column| ("order", column));
        let time = self.time.map(|time| ("time", time.column));
        let roles = ends.chain(weight).chain(features).chain(order).chain(time);
        roles.map(|(role, column)| (role, names[column].to_owned())).collect()
    }

    /// The names of the columns that have another role, or none.
    pub fn left_out<'a>(&self, names: &[&'a str]) -> Vec<&'a str> {
        let relation = self.relation.as_ref().map(|(column, _)| *column);
        let others = self.values().chain(self.order).chain(self.time.map(|time| time.column)).chain(relation);
        let used: Vec<usize> = [self.source, self.target].into_iter().chain(others).collect();
        let others = (0..names.len()).filter(|column| !used.contains(column));
        others.map(|column| names[column]).collect()
    }
}

fn find_named(names: &[&str], column_name: Option<&str>, option: &str) -> Result<Option<usize>, String> {
    column_name.map(|column_name| find(names, column_name, option)).transpose()
}

/// The column with the order of the edges. `weight` is the name of the column of weights, whatever the table calls it.
fn order(names: &[&str], weight: Option<usize>, options: &EdgeColumnOptions) -> Result<Option<usize>, String> {
    match options.order.as_deref() {
        Some(WEIGHT_NAME) if weight.is_some() => Ok(weight),
        column_name => find_named(names, column_name, "--edge-split-by"),
    }
}

/// The column with the times of the edges.
fn time(names: &[&str], options: &EdgeColumnOptions) -> Result<Option<TimeColumn<usize>>, String> {
    let Some(TimeColumn { column, unit }) = &options.time else { return Ok(None) };
    Ok(Some(TimeColumn { column: find(names, column, "--time")?, unit: *unit }))
}

/// The column with the relation of each row, and the relation of the edges.
fn relation(names: &[&str], options: &EdgeColumnOptions) -> Result<Option<(usize, String)>, String> {
    let Some((column, relation)) = &options.relation else { return Ok(None) };
    Ok(Some((find(names, column, "a relation")?, relation.clone())))
}

/// The columns of features that the user names.
fn features(names: &[&str], options: &EdgeColumnOptions) -> Result<Vec<usize>, String> {
    let column_names = options.features.iter();
    column_names.map(|column_name| find(names, column_name, "--edge-features-from")).collect()
}

/// Whether there are names of a column of sources and of one of targets.
pub(crate) fn names_both_ends(names: &[&str]) -> bool {
    named(names, SOURCE_NAMES, None).is_some() && named(names, TARGET_NAMES, None).is_some()
}

/// Whether there are at least two fields, and no field is a number.
pub(crate) fn is_header_of_edges(fields: &[&str]) -> bool {
    fields.len() >= 2
        && fields.iter().all(|field| field.parse::<f64>().is_err())
        && fields.iter().take(2).all(|field| !field.is_empty())
}

/// The column with the first of these names that a column has, but not the column `taken`.
fn named(columns: &[&str], names: &str, taken: Option<usize>) -> Option<usize> {
    names.split(' ').find_map(|name| {
        (0..columns.len()).find(|&column| Some(column) != taken && neo4j(columns[column]).eq_ignore_ascii_case(name))
    })
}

/// A name of Neo4j's import without the label in parentheses: `:START_ID(Person)`.
fn neo4j(name: &str) -> &str {
    match name.split_once('(') {
        Some((role, _)) if name.starts_with(':') => role,
        _ => name.trim(),
    }
}

fn without(names: &[&str], taken: &[Option<usize>]) -> String {
    let others = (0..names.len()).filter(|&column| !taken.contains(&Some(column)));
    let others: Vec<&str> = others.map(|column| names[column]).collect();
    listed(&others, ", ")
}

fn unknown_ends(names: &[&str]) -> String {
    let example = match names {
        [source, target, ..] => format!("--src {} --dst {}", in_shell(source), in_shell(target)),
        _ => "--src COLUMN --dst COLUMN".to_owned(),
    };
    format!(
        "no two columns have names such as src and dst; say which columns have the edges, such as {example}; there are {}",
        listed(names, ", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(source: &str, target: &str, weight: &str) -> EdgeColumnOptions {
        let [source, target, weight] = [source, target, weight].map(|name| (!name.is_empty()).then(|| name.to_owned()));
        let features = Vec::new();
        EdgeColumnOptions { source, target, weight, features, ..EdgeColumnOptions::default() }
    }

    fn columns(names: &str, options: &EdgeColumnOptions) -> Result<(usize, usize, Option<usize>), String> {
        let names: Vec<&str> = names.split(',').collect();
        let columns = EdgeColumns::named(&names, true, options)?;
        Ok((columns.source, columns.target, columns.weight))
    }

    #[test]
    fn columns_of_features_have_no_other_role() {
        let features = |names: &[&str]| EdgeColumnOptions {
            features: names.iter().map(|&name| name.to_owned()).collect(),
            ..EdgeColumnOptions::default()
        };
        let named = |names: &str, options: &EdgeColumnOptions| {
            let names: Vec<&str> = names.split(',').collect();
            let columns = EdgeColumns::named(&names, true, options)?;
            Ok::<_, String>((columns.weight, columns.features))
        };
        // `weight` is the name of weights, but the user says that it is a feature.
        assert_eq!(named("src,dst,weight", &features(&["weight"])), Ok((None, vec![2])));
        assert_eq!(named("src,dst,amount", &features(&["amount"])), Ok((None, vec![2])));
        assert_eq!(named("src,time,dst,weight", &features(&["time"])), Ok((Some(3), vec![1])));
        for (column_name, part) in [
            (&["src"][..], "has the sources already"),
            (&["time", "time"], "is there twice"),
            (&["hour"], "give --edge-features-from one of src, dst, time"),
        ] {
            let error = named("src,dst,time", &features(column_name)).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let numbered = |width, column_names: &[&str]| EdgeColumns::numbered(width, &features(column_names));
        let columns = numbered(4, &["4", "3"]).unwrap();
        assert_eq!((columns.weight, columns.features), (None, vec![3, 2]));
        assert!(numbered(5, &["4"]).is_err());
    }

    #[test]
    fn only_a_column_called_weight_is_a_weight_unasked() {
        for name in ["weight", "Weight", " WEIGHT "] {
            assert_eq!(
                columns(&format!("src,dst,{name}"), &EdgeColumnOptions::default()),
                Ok((0, 1, Some(2))),
                "{name}"
            );
        }
        for name in [
            "amount",
            "value",
            "val",
            "score",
            "count",
            "rating",
            "distance",
            "similarity",
            "strength",
            "freq",
            "frequency",
            "w",
            "wt",
            "weights",
            "edge_weight",
            "fee",
        ] {
            let table = format!("src,dst,{name}");
            let error = columns(&table, &EdgeColumnOptions::default()).unwrap_err();
            assert!(error.contains(&format!("--src src --dst dst --weight {name}")), "{error}");
            assert_eq!(columns(&table, &options("src", "dst", "")), Ok((0, 1, None)), "{name}");
            assert_eq!(columns(&table, &options("", "", name)), Ok((0, 1, Some(2))), "{name}");
        }
    }

    #[test]
    fn names_and_options_give_the_columns() {
        let none = EdgeColumnOptions::default();
        for (names, named, expected) in [
            ("src,dst", none.clone(), (0, 1, None)),
            ("weight,to,from", none.clone(), (2, 1, Some(0))),
            ("who,whom", none.clone(), (0, 1, None)),
            ("head,tail", none.clone(), (0, 1, None)),
            (":START_ID(A),:END_ID(A)", none.clone(), (0, 1, None)),
            ("tail,head", options("tail", "head", ""), (0, 1, None)),
            ("a,b,c", options("c", "a", ""), (2, 0, None)),
            ("a,b,c", options("c", "a", "b"), (2, 0, Some(1))),
            ("src,dst,time", options("", "", "time"), (0, 1, Some(2))),
            ("src,dst,weight", options("", "", "none"), (0, 1, None)),
            ("src,dst,weight", options("src", "dst", ""), (0, 1, Some(2))),
            ("user,to,x", options("user", "", "x"), (0, 1, Some(2))),
        ] {
            assert_eq!(columns(names, &named), Ok(expected), "{names} {named:?}");
        }
    }

    #[test]
    fn an_error_has_the_options_that_say_it() {
        let none = EdgeColumnOptions::default();
        for (names, named, part) in [
            ("tail,head", none.clone(), "--src tail --dst head"),
            ("head,relation,tail", none.clone(), "--src head --dst tail"),
            ("src,dst,time", none.clone(), "--src src --dst dst --weight time"),
            ("src,dst,time", none.clone(), "--edge-features-from time"),
            ("a,b,c", none.clone(), "--src a --dst b"),
            ("a,b,c", options("a", "", ""), "--dst with one of b, c"),
            ("a,b", options("from", "", ""), "give --src one of a, b"),
            ("a,b", options("a", "a", ""), "two columns"),
        ] {
            let error = columns(names, &named).unwrap_err();
            assert!(error.contains(part), "{names}: {error}");
        }
        for (width, expected) in [(2, None), (3, Some(2))] {
            assert_eq!(EdgeColumns::numbered(width, &none).unwrap().weight, expected);
        }
        let error = EdgeColumns::numbered(4, &none).unwrap_err();
        assert!(error.contains("--src 1 --dst 2"), "{error}");
        let triple = EdgeColumns::numbered(3, &options("1", "3", "")).unwrap();
        assert_eq!((triple.source, triple.target, triple.weight), (0, 2, None));
    }
}
