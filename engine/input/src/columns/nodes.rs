//! The columns of tables with data of nodes.

use super::{
    NONE,
    edges::TimeColumn,
    find, in_shell, listed,
    names::{LABEL_NAMES, Named, SOURCE_NAMES, TARGET_NAMES},
};

/// The columns of tables of nodes that the user names: by name, or by number, from 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// The column with the ids of the rows, or `none` if the rows are in the order of the ids. Of several, a table has the first that
    /// it has.
    pub id: Vec<String>,
    /// The column with the label of each node. Several make sets of labels: zeros and ones, one column per class.
    pub label: Vec<String>,
    /// The columns with features.
    pub features: Vec<String>,
    /// The column with the split of each node, or columns of masks.
    pub split: Vec<String>,
    /// The column with the time of each node.
    pub time: Option<TimeColumn<String>>,
    /// The columns with features of another table, by their exact names, which replace `features`.
    pub schema: Vec<String>,
}

/// What the first values of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Numbers, or none at all.
    Numbers,
    /// Integers, 0 or more, all different.
    DistinctIntegers,
    /// Names, all different.
    Strings,
    /// Values that an encoding makes numbers of: dates, booleans, and text that repeats.
    Encodable,
    /// Anything else, such as lists of names.
    Others,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct TableColumn<'a> {
    pub name: &'a str,
    pub kind: Kind,
}

impl TableOptions {
    /// The name of the column of times.
    fn time(&self) -> Option<&String> {
        self.time.as_ref().map(|time| &time.column)
    }
}

/// What a table is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// All columns but ids, labels, splits and times. A model that saw the labels would learn nothing else.
    Features,
    /// The column that is named so, otherwise all columns but the ids.
    Labels,
    /// The columns that the user names.
    Splits,
    /// The column that the user names.
    Times,
}

impl Purpose {
    /// The option that takes the data from one column only.
    pub fn only(self, name: &str) -> String {
        let option = match self {
            Self::Features => "--features-from",
            Self::Labels => "--label",
            Self::Splits => "--split-column",
            Self::Times => "--node-time",
        };
        format!("{option} {}", in_shell(name))
    }
}

/// The roles of the columns of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Roles {
    /// The ids of the rows. None if rows are in the order of the ids.
    pub id: Option<usize>,
    pub data: Vec<usize>,
    /// The others, but the index of pandas.
    pub left_out: Vec<usize>,
}

impl Roles {
    /// Gives each column its role. `header`: the columns have names.
    ///
    /// # Errors
    /// If the role of a column is not certain. The error has the options that say it.
    pub fn from_columns(
        columns: &[TableColumn<'_>],
        header: bool,
        purpose: Purpose,
        options: &TableOptions,
    ) -> Result<Self, String> {
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        let table = Table { columns, names, header, options };
        let id = table.id()?;
        let data = match purpose {
            Purpose::Features => table.features(id)?,
            Purpose::Labels => table.labels(id)?,
            Purpose::Splits => table.find_named(&options.split, "--split-column")?,
            Purpose::Times => options
                .time()
                .map(|column| find(&table.names, column, "--node-time"))
                .into_iter()
                .collect::<Result<_, _>>()?,
        };
        let left_out = (0..columns.len()).filter(|column| Some(*column) != id && !data.contains(column));
        Ok(Self { id, left_out: left_out.filter(|&column| table.named(column) != Named::Index).collect(), data })
    }

    /// The column of ids alone, as [`Self::from_columns`] finds it.
    pub fn id_of(columns: &[TableColumn<'_>], header: bool, options: &TableOptions) -> Result<Option<usize>, String> {
        let table = Table { columns, names: columns.iter().map(|column| column.name).collect(), header, options };
        table.id()
    }
}

struct Table<'a> {
    columns: &'a [TableColumn<'a>],
    names: Vec<&'a str>,
    header: bool,
    options: &'a TableOptions,
}

impl Table<'_> {
    fn named(&self, column: usize) -> Named {
        match self.header {
            true => Named::from_name(self.names[column]),
            false => Named::Feature,
        }
    }

    fn kind(&self, column: usize) -> Kind {
        self.columns[column].kind
    }

    fn all(&self) -> impl Iterator<Item = usize> + Clone {
        0..self.columns.len()
    }

    /// The columns of some options. Each must exist.
    fn find_named(&self, column_names: &[String], option: &str) -> Result<Vec<usize>, String> {
        column_names.iter().map(|column_name| find(&self.names, column_name, option)).collect()
    }

    fn is_one_of(&self, column: usize, column_names: &[String]) -> bool {
        column_names.iter().any(|column_name| find(&self.names, column_name, "") == Ok(column))
    }

    fn is_time(&self, column: usize) -> bool {
        self.options.time().is_some_and(|name| find(&self.names, name, "") == Ok(column))
    }

    /// The column of ids, by option, by name, or as the only one of strings.
    fn id(&self) -> Result<Option<usize>, String> {
        if !self.options.id.is_empty() {
            let mut column_names = self.options.id.iter().filter(|column_name| *column_name != NONE);
            let found = column_names.clone().find_map(|column_name| find(&self.names, column_name, "").ok());
            return match (found, column_names.next()) {
                (None, Some(column_name)) if !self.options.id.iter().any(|id| id == NONE) => {
                    find(&self.names, column_name, "--id").map(Some)
                }
                (found, _) => Ok(found),
            };
        }
        let TableOptions { label, features, split, .. } = self.options;
        let named = [label, features, split];
        let free = self.all().filter(|&column| !named.iter().any(|named| self.is_one_of(column, named)));
        let free: Vec<usize> = free.filter(|&column| !self.is_time(column)).collect();
        let mut strings = free.clone();
        strings.retain(|&column| {
            self.kind(column) == Kind::Strings && !matches!(self.named(column), Named::Label | Named::Split)
        });
        if !self.header {
            return match strings.first() {
                None => Ok(None),
                Some(first) => Err(format!(
                    "expected rows of numbers, found text in column {}; if it has the ids of the nodes, give --id {}",
                    first + 1,
                    first + 1
                )),
            };
        }
        // A single column has the data.
        strings.retain(|_| self.columns.len() > 1);
        let [ids, some_ids, indices] = [Named::Id, Named::SomeId, Named::Index].map(|named| {
            let columns = free.iter().copied();
            columns.filter(|&column| self.named(column) == named).collect()
        });
        let ranks: [Vec<usize>; 4] = [ids, some_ids, strings, indices];
        match ranks.into_iter().find(|rank| !rank.is_empty()).as_deref() {
            None => Ok(None),
            Some(&[id]) => Ok(Some(id)),
            Some(several) => Err(format!(
                "several columns may have the ids of the rows: {}; give {}",
                self.listed(several),
                self.ids_to_add(several)
            )),
        }
    }

    /// The options that name one of these as the column of ids.
    fn ids_to_add(&self, columns: &[usize]) -> String {
        const SHOWN_MAX: usize = 5;
        let shown = columns.iter().take(SHOWN_MAX);
        let options: Vec<_> = shown.map(|&column| format!("--id {}", in_shell(self.names[column]))).collect();
        options.join(" or ")
    }

    fn listed(&self, columns: &[usize]) -> String {
        let names: Vec<&str> = columns.iter().map(|&column| self.names[column]).collect();
        listed(&names, ", ")
    }

    /// Fails if one of these columns may have the ids of the rows, and none is known to.
    fn expect_no_ids(&self, id: Option<usize>, columns: impl Iterator<Item = usize>) -> Result<(), String> {
        // A single column has the data.
        if id.is_some() || !self.options.id.is_empty() || !self.header || self.columns.len() == 1 {
            return Ok(());
        }
        let columns: Vec<usize> = columns
            .filter(|&column| match self.named(column) {
                Named::Unclear("ids") => true,
                Named::Other => self.kind(column) == Kind::DistinctIntegers,
                _ => false,
            })
            .collect();
        if columns.is_empty() {
            return Ok(());
        }
        Err(format!(
            "the ids of the rows may be in {}; give {} if they are, or --id none if the rows are in the order of the ids",
            self.listed(&columns),
            self.ids_to_add(&columns)
        ))
    }

    /// Whether a column has data that is never a feature, and everyone knows it.
    fn is_other_data(&self, column: usize) -> bool {
        self.is_one_of(column, &self.options.label)
            || self.is_one_of(column, &self.options.split)
            || self.is_time(column)
            || matches!(self.named(column), Named::Label | Named::Split | Named::Index)
    }

    /// The columns of a schema, in its order. All must exist.
    fn of_schema(&self) -> Result<Vec<usize>, String> {
        let (found, lacking): (Vec<_>, Vec<_>) = self
            .options
            .schema
            .iter()
            .map(|column_name| (column_name, self.names.iter().position(|name| name == column_name)))
            .partition(|(_, found)| found.is_some());
        if lacking.is_empty() {
            return Ok(found.into_iter().filter_map(|(_, column)| column).collect());
        }
        let lacking: Vec<&str> = lacking.iter().map(|(name, _)| name.as_str()).collect();
        Err(format!(
            "this table lacks {} of the {} columns of --schema-of: {}; add them, or rename columns",
            lacking.len(),
            self.options.schema.len(),
            listed(&lacking, ", ")
        ))
    }

    fn features(&self, id: Option<usize>) -> Result<Vec<usize>, String> {
        let options = self.options;
        if !options.features.is_empty() || !options.schema.is_empty() {
            let features = match options.schema.is_empty() {
                true => self.find_named(&options.features, "--features-from")?,
                false => self.of_schema()?,
            };
            let others = self.all().filter(|column| !features.contains(column));
            self.expect_no_ids(id, others.filter(|&column| !self.is_other_data(column)))?;
            return self.encodable(features);
        }
        let others: Vec<usize> =
            self.all().filter(|&column| Some(column) != id && !self.is_other_data(column)).collect();
        self.expect_no_edges()?;
        self.expect_no_ids(id, others.iter().copied())?;
        let unclear: Vec<usize> = others
            .iter()
            .filter(|&&column| match self.named(column) {
                _ if matches!(self.kind(column), Kind::Strings | Kind::Others) => true,
                Named::Id | Named::SomeId => true,
                Named::Unclear(kind) => kind != "ids",
                _ => false,
            })
            .copied()
            .collect();
        if unclear.is_empty() {
            return Ok(others);
        }
        let clear: Vec<&str> =
            others.iter().filter(|column| !unclear.contains(column)).map(|&column| self.names[column]).collect();
        Err(format!(
            "not all columns are clearly features: {}; give {} with the columns that are",
            self.listed(&unclear),
            match clear.is_empty() {
                true => "--features-from".to_owned(),
                false => format!("--features-from {}", shell_list(&clear)),
            }
        ))
    }

    fn expect_no_edges(&self) -> Result<(), String> {
        match self.header && self.has_one_of(SOURCE_NAMES) && self.has_one_of(TARGET_NAMES) {
            true => Err(format!(
                "these are columns of edges, not of nodes: {}; give the file with --edges, or name the features with \
                 --features-from",
                listed(&self.names, ", ")
            )),
            false => Ok(()),
        }
    }

    /// Whether a column has one of some names of several letters.
    fn has_one_of(&self, names: &str) -> bool {
        let mut names = names.split(' ').filter(|name| name.len() > 1);
        names.any(|name| self.names.iter().any(|own| own.eq_ignore_ascii_case(name)))
    }

    fn labels(&self, id: Option<usize>) -> Result<Vec<usize>, String> {
        let options = self.options;
        let named = self.find_named(&options.label, "--label")?;
        let by_name = LABEL_NAMES.iter().find_map(|name| {
            self.all().find(|&column| self.names[column].eq_ignore_ascii_case(name)).filter(|_| self.header)
        });
        let labels = match (named.is_empty(), by_name) {
            (false, _) => named,
            (true, Some(column)) => vec![column],
            (true, None) => {
                let others = self.all().filter(|&column| Some(column) != id);
                others
                    .filter(|&column| !matches!(self.named(column), Named::Split | Named::Index))
                    .filter(|&column| !self.is_one_of(column, &options.split) && !self.is_time(column))
                    .collect()
            }
        };
        let others = self.all().filter(|column| !labels.contains(column));
        let is_named = !options.label.is_empty() || by_name.is_some();
        self.expect_no_ids(id, others.filter(|&column| !self.is_other_data(column)))?;
        if !is_named && labels.len() > 1 {
            self.expect_no_ids(id, labels.iter().copied())?;
            if let Some(&unclear) = labels.iter().find(|&&column| {
                matches!(self.kind(column), Kind::Strings | Kind::Encodable | Kind::Others)
                    || matches!(self.named(column), Named::Id | Named::SomeId)
            }) {
                return Err(format!(
                    "which column has the labels is not known, as {} has none; give --label with one of {}",
                    in_shell(self.names[unclear]),
                    self.listed(&labels)
                ));
            }
        }
        Ok(labels)
    }

    /// Fails if one of the columns has values that are no features.
    fn encodable(&self, columns: Vec<usize>) -> Result<Vec<usize>, String> {
        match columns.iter().find(|&&column| self.kind(column) == Kind::Others) {
            None => Ok(columns),
            Some(&column) => Err(format!(
                "expected numbers or text in column {}, found values of another type; leave it out of --features-from",
                in_shell(self.names[column])
            )),
        }
    }
}

/// The value of an option that takes a list.
pub(crate) fn shell_list(names: &[&str]) -> String {
    in_shell(&names.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table as `name:kind`, where the kind is n(umbers), i(ntegers), s(trings), e(ncodable) or l(ists).
    fn roles(table: &str, purpose: Purpose, options: &TableOptions) -> Result<(Option<usize>, Vec<usize>), String> {
        let columns = table.split(',').map(|column| {
            let (name, kind) = column.rsplit_once(':').unwrap();
            let kind = match kind {
                "n" => Kind::Numbers,
                "i" => Kind::DistinctIntegers,
                "s" => Kind::Strings,
                "e" => Kind::Encodable,
                _ => Kind::Others,
            };
            TableColumn { name, kind }
        });
        let columns: Vec<_> = columns.collect();
        let Roles { id, data, .. } = Roles::from_columns(&columns, true, purpose, options)?;
        Ok((id, data))
    }

    fn options(id: &str, label: &str, features: &str) -> TableOptions {
        let [id, label, features] = [id, label, features].map(|names| {
            let names = names.split(',').filter(|name| !name.is_empty());
            names.map(str::to_owned).collect()
        });
        TableOptions { id, label, features, ..TableOptions::default() }
    }

    #[test]
    fn known_columns_get_their_roles() {
        for (table, purpose, named, id, data) in grappa_skip::cases![
            "user_id:i,f0:n,f1:n", Purpose::Features, ["", "", ""], Some(0), &[1, 2][..];
            "f0:n,f1:n,id:i", Purpose::Features, ["", "", ""], Some(2), &[0, 1];
            "f0:n,f1:i,label:n", Purpose::Features, ["", "", ""], None, &[0, 1];
            "f0:n,train_mask:n", Purpose::Features, ["", "", ""], None, &[0];
            "package:s,a:n", Purpose::Features, ["", "", ""], Some(0), &[1];
            "city:s,a:n", Purpose::Features, ["", "", ""], Some(0), &[1];
            ":i,0:n,1:n", Purpose::Features, ["", "", ""], Some(0), &[1, 2];
            "id:i,__index_level_0__:i,a:n", Purpose::Features, ["", "", ""], Some(0), &[2];
            "age:n,income:n", Purpose::Features, ["", "", ""], None, &[0, 1];
            "id:i,day:e,a:n", Purpose::Features, ["", "", ""], Some(0), &[1, 2];
            "id:i,city:s,a:n", Purpose::Features, ["", "", "a,city"], Some(0), &[2, 1];
            "customer:i,a:n", Purpose::Features, ["customer", "", ""], Some(0), &[1];
            "customer:i,a:n", Purpose::Features, ["none", "", ""], None, &[0, 1];
            "customer:i,a:n", Purpose::Features, ["nid,customer", "", ""], Some(0), &[1];
            "id:i,city:s,a:n,b:n", Purpose::Features, ["", "", "b,a"], Some(0), &[3, 2];
            "id:i,fraud:n,a:n", Purpose::Features, ["", "fraud", ""], Some(0), &[2];
            "id:i,label:n,a:n", Purpose::Labels, ["", "", ""], Some(0), &[1];
            "id:i,kind:n,a:n", Purpose::Labels, ["", "kind", ""], Some(0), &[1];
            "id:i,music:n,art:n", Purpose::Labels, ["", "", ""], Some(0), &[1, 2];
            "label:n", Purpose::Labels, ["", "", ""], None, &[0];
            "y:n,node_label:n", Purpose::Labels, ["", "", ""], None, &[1];
        ] {
            let named = options(named[0], named[1], named[2]);
            assert_eq!(roles(table, purpose, &named), Ok((id, data.to_vec())), "{table} {named:?}");
        }
    }

    #[test]
    fn an_uncertain_role_is_an_error_with_the_options_that_say_it() {
        for (table, purpose, named, part) in grappa_skip::cases![
            "customer:i,a:n", Purpose::Features, ["", "", ""], "--id customer if they are, or --id none";
            "customer:i,a:n", Purpose::Features, ["", "", "a"], "--id customer";
            "customer:i,label:n", Purpose::Labels, ["", "", ""], "--id customer";
            "covid:n,a:n", Purpose::Features, ["", "", ""], "--id covid";
            "user_id:i,item_id:i,a:n", Purpose::Features, ["", "", ""], "--id user_id or --id item_id";
            "id:i,city_id:n,a:n", Purpose::Features, ["", "", ""], "--features-from a";
            "id:i,city:s,a:n,b:n", Purpose::Features, ["", "", ""], "--features-from a,b";
            "id:i,tags:l,a:n", Purpose::Features, ["", "", ""], "--features-from a";
            "id:i,tags:l,a:n", Purpose::Features, ["", "", "a,tags"], "leave it out";
            "id:i,y_true:n,a:n", Purpose::Features, ["", "", ""], "--features-from a";
            "id:i,a:n", Purpose::Features, ["user", "", ""], "give --id one of id, a";
            "id:i,a:n", Purpose::Features, ["", "", "b"], "give --features-from one of id, a";
            "src:i,dst:i", Purpose::Features, ["", "", ""], "--edges";
            "id:i,kind:s,a:n", Purpose::Labels, ["", "", ""], "--label with one of kind, a";
        ] {
            let named = options(named[0], named[1], named[2]);
            let error = roles(table, purpose, &named).unwrap_err();
            assert!(error.contains(part), "{table}: {error}");
        }
    }

    #[test]
    fn columns_of_a_schema_are_found_by_name() {
        let schema =
            |names: [&str; 2]| TableOptions { schema: names.map(str::to_owned).to_vec(), ..TableOptions::default() };
        let table = "b:n,city:s,id:i,a:n";
        let found = roles(table, Purpose::Features, &schema(["a", "city"]));
        assert_eq!(found, Ok((Some(2), vec![3, 1])));
        // A number is no name here.
        let error = roles(table, Purpose::Features, &schema(["1", "c"])).unwrap_err();
        assert!(error.contains("lacks 2 of the 2 columns of --schema-of: 1, c"), "{error}");
    }
}
