//! Known names of columns. All are compared without regard to case.

pub(super) const SOURCE_NAMES: &str = "\
    source src from source_id src_id from_id source_node src_node from_node u head subject start start_id \
    :start_id citing follower from_user sender node1 node_1 id1 id_1 user1 user_1 fromnodeid";

pub(super) const TARGET_NAMES: &str = "\
    target dst dest destination to target_id dst_id destination_id to_id target_node dst_node destination_node \
    to_node v tail object end end_id :end_id cited followee to_user receiver node2 node_2 id2 id_2 user2 \
    user_2 tonodeid";

/// The only name that makes a column the weights of edges. An amount, a score or a distance may be anything, so the user says what it is.
pub(super) const WEIGHT_NAME: &str = "weight";

/// Names of a column of labels, the preferred one first.
pub(crate) const LABEL_NAMES: [&str; 7] = ["node_label", "labels", "label", "y", "class", "target", "classes"];

const ID_NAMES: &str = "id node node_id nodeid node-id nid _id vertex vertex_id vertexid vid :id";

/// Names that ids often have, and other data rarely.
const ID_WORDS: &str = "\
    index key name uid uuid guid oid gid user userid username itemid paperid authorid productid customerid \
    accountid personid movieid postid pageid entity entityid objectid deviceid patientid transactionid txid \
    docid rowid";

/// Columns that say which split a node is in.
const SPLIT_NAMES: &str = "\
    split train_mask val_mask valid_mask validation_mask test_mask is_train is_val is_valid is_test \
    train_test_split data_split";

/// Names that a split may have.
const MAYBE_SPLITS: &str = "train val valid validation test fold subset partition";

/// Words that the name of a label may have.
const MAYBE_LABELS: &str = "category outcome community ground_truth groundtruth gt";

/// Words that name features, alone or with a number.
const FEATURE_WORDS: &str = "\
    feature features feat attr attribute col column dim dimension pca pc svd emb embed embedding component \
    comp var embeddings vec";

/// What a name says about a column of a table of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    Id,
    /// Ids, of the rows or of something else.
    SomeId,
    /// The index that pandas writes. It has ids if no other column has, and is never data: pandas writes it for every table that was
    /// filtered or shuffled.
    Index,
    Label,
    Split,
    /// Ids, labels or a split, or a feature of that name.
    Unclear(&'static str),
    Feature,
    Other,
}

impl Named {
    pub fn from_name(name: &str) -> Self {
        let lower = name.trim().to_ascii_lowercase();
        if lower.is_empty() || lower == "__index_level_0__" || lower.starts_with("unnamed: ") {
            Self::Index
        } else if is_one_of(ID_NAMES, &lower) || lower == "node id" || is_id_of_neo4j(&lower) {
            Self::Id
        } else if is_one_of(ID_WORDS, &lower) || ends_as_id(name.trim()) {
            Self::SomeId
        } else if LABEL_NAMES.contains(&lower.as_str()) {
            Self::Label
        } else if is_one_of(SPLIT_NAMES, &lower) {
            Self::Split
        } else if is_one_of(MAYBE_SPLITS, &lower) {
            Self::Unclear("a split")
        } else if is_one_of(MAYBE_LABELS, &lower) || has_word(&lower, &["label", "labels", "class", "target", "y"]) {
            Self::Unclear("labels")
        } else if is_feature(&lower) {
            Self::Feature
        } else if lower.ends_with("id") {
            Self::Unclear("ids")
        } else {
            Self::Other
        }
    }
}

/// Whether a name is one of some names, which have blanks between them.
fn is_one_of(names: &str, name: &str) -> bool {
    names.split(' ').any(|other| other == name)
}

/// The header of Neo4j's import: `:ID`, `name:ID`, `:ID(Person)`.
fn is_id_of_neo4j(lower: &str) -> bool {
    match lower.split_once(":id") {
        Some((_, rest)) => rest.is_empty() || rest.starts_with('('),
        None => false,
    }
}

/// Whether a name ends in the word id: `user_id`, `user-id`, `user.id`, `userId`, `USER_ID`.
fn ends_as_id(name: &str) -> bool {
    let Some(at) = name.len().checked_sub(2).filter(|&at| name.is_char_boundary(at)) else {
        return false;
    };
    let (before, id) = name.split_at(at);
    let separated = before.ends_with(['_', '-', '.', ' ']);
    let is_camel = matches!(id, "Id" | "ID") && before.ends_with(|c: char| c.is_lowercase());
    id.eq_ignore_ascii_case("id") && (separated || is_camel)
}

/// Whether a name of several words has one of these.
fn has_word(lower: &str, words: &[&str]) -> bool {
    let mut parts = lower.split(|c: char| !c.is_alphanumeric());
    lower.contains(|c: char| !c.is_alphanumeric()) && parts.any(|part| words.contains(&part))
}

/// Whether a name is the name of one feature among many: a number, a letter, or a word for features, perhaps with a number.
fn is_feature(lower: &str) -> bool {
    let word = lower.trim_end_matches(|c: char| c.is_ascii_digit());
    let has_number = word.len() < lower.len();
    let word = word.trim_end_matches(['_', '-', '.', ' ']);
    let is_letter = word.len() == 1 && word.bytes().all(|byte| byte.is_ascii_lowercase());
    word.is_empty() && has_number || is_letter || is_one_of(FEATURE_WORDS, word)
}

/// Whether a column of ids has such a name.
pub(crate) fn is_id_name(name: &str) -> bool {
    matches!(Named::from_name(name), Named::Id | Named::SomeId)
}

/// Whether a first line with this field is a header.
pub(crate) fn is_known_name(name: &str) -> bool {
    matches!(Named::from_name(name), Named::Id | Named::SomeId | Named::Label | Named::Split)
        && name.parse::<f64>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_a_column_has() {
        for (names, expected) in grappa_skip::cases![
            &["id", "ID", "nid", "_id", "vertex", ":ID", "personId:ID(Person)", " Node_ID "][..], Named::Id;
            &["user_id", "customer_id", "userId", "paperID", "USER-ID", "name", "index", "userid"], Named::SomeId;
            &["", "Unnamed: 0", "__index_level_0__"], Named::Index;
            &["label", "Y", "class", "node_label"], Named::Label;
            &["split", "train_mask"], Named::Split;
            &["train", "fold"], Named::Unclear("a split");
            &["category", "y_true", "label_0", "fraud-class"], Named::Unclear("labels");
            &["covid", "gridid"], Named::Unclear("ids");
            &["f0", "x", "x_12", "pca_1", "0", "17", "feat-3", "V1", "PC2", "embedding"], Named::Feature;
            &["age", "income", "identity", "subclass"], Named::Other;
        ] {
            for name in names {
                assert_eq!(Named::from_name(name), expected, "{name:?}");
            }
        }
    }
}
