//! Names of classes: the different texts of a column of labels.
//!
//! The first pass over a column collects its names. Then each name gets its class, in the order of the names as bytes. A name
//! that was never seen before is an error afterwards.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::messages::shown;

const CLASS_NAMES_MAX: usize = 1 << 16;
/// The most bytes of all names together.
const CLASS_NAME_BYTES_MAX: usize = 4 << 20;

/// The names in a column of labels.
#[derive(Debug, Default)]
pub(super) struct ClassNames {
    names: Mutex<Names>,
    /// Whether a column of a text file has numbers. Then it has no names.
    has_numbers: AtomicBool,
    /// Whether they are the names of another store.
    is_given: AtomicBool,
}

#[derive(Debug, Default)]
struct Names {
    classes: HashMap<String, u32>,
    bytes: usize,
    /// Whether all names are known, and have their classes.
    complete: bool,
    /// What is wrong with the first value that has no class.
    problem: Option<String>,
}

/// The number that [`ClassNames::number`] gives for a value that has no class.
pub(super) const NO_CLASS: f64 = f64::INFINITY;

impl ClassNames {
    pub fn give(&self, classes: &[String]) {
        let mut names = self.names();
        names.classes = classes.iter().cloned().zip(0..).collect();
        names.complete = true;
        self.is_given.store(true, Ordering::Relaxed);
    }

    /// Whether they are the names of another store.
    pub fn are_given(&self) -> bool {
        self.is_given.load(Ordering::Relaxed)
    }

    /// The class of a value of a column of text, NaN if it means that there is none, and [`NO_CLASS`] if [`Self::problem`] says what
    /// is wrong with it.
    pub fn number(&self, value: &[u8]) -> f64 {
        let class = match std::str::from_utf8(value) {
            Ok(name) if is_missing(name) => return f64::NAN,
            Ok(name) => self.class(name),
            Err(_) => Err(format!("expected a class in UTF-8, found {}", shown(value))),
        };
        class.map_or_else(
            |problem| {
                self.names().problem.get_or_insert(problem);
                NO_CLASS
            },
            f64::from,
        )
    }

    /// What is wrong with the first value that has no class.
    pub fn problem(&self) -> Option<String> {
        self.names().problem.clone()
    }

    /// Notes that a column of a text file has a number.
    ///
    /// # Errors
    /// If it has names.
    pub fn note_number(&self, number: &str) -> Result<(), String> {
        // All numbers but the first one.
        if self.has_numbers.load(Ordering::Relaxed) {
            return Ok(());
        }
        if !self.is_empty() {
            return Err(mixed(&format!("the number {}", shown(number.as_bytes())), "names"));
        }
        self.has_numbers.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// As [`Self::class`], in a text file, where a column of labels has names or numbers.
    ///
    /// # Errors
    /// If it has numbers, too.
    pub fn class_in_text(&self, name: &str) -> Result<u32, String> {
        match self.has_numbers.load(Ordering::Relaxed) {
            true => Err(mixed(&format!("the name {}", shown(name.as_bytes())), "numbers")),
            false => self.class(name),
        }
    }

    /// The class of a name. While names are collected, it is a number that will change.
    ///
    /// # Errors
    /// If there are too many names, or the name is new after all were collected.
    pub fn class(&self, name: &str) -> Result<u32, String> {
        let mut names = self.names();
        if let Some(&class) = names.classes.get(name) {
            return Ok(class);
        }
        if names.complete {
            let shown = shown(name.as_bytes());
            if self.are_given() {
                return Err(format!(
                    "found the class {shown}, which the store of --schema-of does not have; leave the label empty, or correct it"
                ));
            }
            return Err(format!(
                "found the class {shown}, which was not there before: the file changed while it was read; start again"
            ));
        }
        if names.classes.len() == CLASS_NAMES_MAX || names.bytes + name.len() > CLASS_NAME_BYTES_MAX {
            return Err(format!(
                "expected names of classes, found more than {CLASS_NAMES_MAX} different ones or {} MiB of them; if another column \
                 has the classes, give --label with its name",
                CLASS_NAME_BYTES_MAX >> 20
            ));
        }
        let class = names.classes.len() as u32;
        names.bytes += name.len();
        names.classes.insert(name.to_owned(), class);
        Ok(class)
    }

    /// Gives each name its class. All rows were read.
    pub fn complete(&self) {
        let mut names = self.names();
        if self.are_given() {
            return;
        }
        let sorted: BTreeMap<String, u32> = names.classes.drain().collect();
        names.classes = sorted.into_keys().zip(0..).collect();
        names.complete = true;
    }

    /// The name of each class, once they are complete. Empty if classes have no names.
    pub fn all(&self) -> Vec<String> {
        let names = self.names();
        let mut all: Vec<(&u32, &String)> = names.classes.iter().map(|(name, class)| (class, name)).collect();
        match names.complete {
            true => all.sort(),
            false => all.sort_by_key(|&(_, name)| name),
        }
        all.into_iter().map(|(_, name)| name.clone()).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.names().classes.is_empty()
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn mixed(found: &str, before: &str) -> String {
    format!(
        "found {found}, but classes before it are {before}; leave the label empty if the node has none, or write all classes as \
         numbers from 0, or all as names that are no numbers"
    )
}

/// Whether a text in a column of names means that the node has no label: as in a column of numbers, nothing, NaN or a negative
/// number.
fn is_missing(text: &str) -> bool {
    text.is_empty() || text.parse().is_ok_and(|number: f64| number.is_nan() || number < 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_in_the_order_of_their_names() {
        let names = ClassNames::default();
        for name in ["gold", "free", "gold", "10", "Gold"] {
            names.class(name).unwrap();
        }
        names.complete();
        assert_eq!(names.all(), ["10", "Gold", "free", "gold"]);
        assert_eq!(names.class("gold"), Ok(3));
        assert!(names.class("silver").unwrap_err().contains("the file changed"));
    }

    #[test]
    fn too_many_names_are_refused() {
        let names = ClassNames::default();
        for number in 0..CLASS_NAMES_MAX {
            names.class(&number.to_string()).unwrap();
        }
        names.class("7").unwrap();
        assert!(names.class("one more").unwrap_err().contains("65536 different"));
        let names = ClassNames::default();
        let long = "x".repeat(CLASS_NAME_BYTES_MAX);
        names.class(&long).unwrap();
        assert!(names.class("y").unwrap_err().contains("4 MiB"));
    }

    #[test]
    fn a_missing_label_is_the_same_among_numbers_and_names() {
        for (text, missing) in [("", true), ("nan", true), ("NaN", true), ("-1", true), ("0", false), ("none", false)] {
            assert_eq!(is_missing(text), missing, "{text}");
        }
    }
}
