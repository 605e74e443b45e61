//! The columns of a table with data of nodes, chosen by their names.

/// Names of a column of ids.
pub(super) const ID_NAMES: [&str; 8] = ["id", "node", "node_id", "nodeid", "node-id", "node id", "index", "key"];

/// The name that pandas gives to the index of a table in Parquet. It has ids if no other column has, and is never data: pandas writes it
/// for every table that was filtered or shuffled.
pub(super) const INDEX_OF_PANDAS: &str = "__index_level_0__";

/// Names of a column of labels, the preferred one first.
pub(super) const LABEL_NAMES: [&str; 5] = ["node_label", "labels", "label", "y", "class"];

/// Which columns of a table have the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnsOf {
    /// All but those of ids and labels. A model that saw the labels would learn nothing else.
    Features,
    /// The one that is named so, otherwise all but that of ids.
    Labels,
}

/// The columns that were chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chosen {
    /// Those with the data, ascending.
    pub columns: Vec<usize>,
    /// The names of those that have other data.
    pub left_out: Vec<String>,
}

impl ColumnsOf {
    /// Chooses columns by their names. `ids` is the column of ids.
    pub fn choose(self, names: &[&str], ids: Option<usize>) -> Chosen {
        let others = || (0..names.len()).filter(|&column| Some(column) != ids && names[column] != INDEX_OF_PANDAS);
        let is_label = |column: usize| LABEL_NAMES.iter().any(|name| names[column].eq_ignore_ascii_case(name));
        let columns: Vec<usize> = match self {
            Self::Features => others().filter(|&column| !is_label(column)).collect(),
            Self::Labels => {
                let named = |name: &&str| others().find(|&column| names[column].eq_ignore_ascii_case(name));
                match LABEL_NAMES.iter().find_map(named) {
                    Some(column) => vec![column],
                    None => others().collect(),
                }
            }
        };
        let left_out = others().filter(|column| !columns.contains(column));
        Chosen {
            left_out: left_out.map(|column| names[column].to_owned()).collect(),
            columns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_no_features() {
        let names = ["id", "a", "Label", "b"];
        let chosen = |of: ColumnsOf, names: &[&str], ids| {
            let Chosen { columns, left_out } = of.choose(names, ids);
            (columns, left_out.join(" "))
        };
        assert_eq!(
            chosen(ColumnsOf::Features, &names, Some(0)),
            (vec![1, 3], "Label".to_owned())
        );
        assert_eq!(chosen(ColumnsOf::Labels, &names, Some(0)), (vec![2], "a b".to_owned()));
        // Sets of labels have a column per class.
        assert_eq!(
            chosen(ColumnsOf::Labels, &["music", "art"], None),
            (vec![0, 1], String::new())
        );
        // The index of pandas is neither features nor labels.
        let of_pandas = ["id", "a", INDEX_OF_PANDAS];
        for of in [ColumnsOf::Features, ColumnsOf::Labels] {
            assert_eq!(chosen(of, &of_pandas, Some(0)), (vec![1], String::new()));
        }
        // The most specific name counts.
        assert_eq!(
            chosen(ColumnsOf::Labels, &["y", "node_label"], None),
            (vec![1], "y".to_owned())
        );
    }
}
