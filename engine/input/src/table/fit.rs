//! The encoding of a column, from the forms of all its values.

use std::collections::HashSet;

use grappa_formats::schema::{CategoryForm, Column, Encoding, Missing};

use super::{
    cell::{Cell, Form},
    options::{EncodingOptions, Replacement, TEXT_BYTES_MAX},
    problems::{Found, Kind, Problems},
};

#[derive(Debug, Default)]
pub(crate) struct ColumnFit {
    rows: u64,
    missing: Found,
    numbers: Found,
    codes: Found,
    booleans: Found,
    dates: Found,
    other_numbers: Found,
    other_dates: Found,
    texts: Found,
    not_finite: Found,
    /// The kind of the first of `other_numbers`.
    other_number: Option<&'static str>,
    /// A bit for each pair of words for false and true.
    pairs: u8,
    /// The sum of finite numbers, of booleans or of dates.
    sum: f64,
    /// The different texts. None: more than a category may have.
    values: Option<HashSet<String>>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fitted {
    pub column: Column,
    /// The number of missing values.
    pub missing: u64,
    /// Whether all values are the same.
    pub is_constant: bool,
}

impl Fitted {
    /// A column of numbers without missing values.
    pub fn numbers(name: &str) -> Self {
        Self { column: Column::number(name), missing: 0, is_constant: false }
    }
}

impl ColumnFit {
    pub fn new() -> Self {
        Self { values: Some(HashSet::new()), ..Self::default() }
    }

    /// Adds the value of a row. Rows come in their order.
    pub fn add(&mut self, row: u64, cell: Cell<'_>, values_max: usize) {
        self.rows += 1;
        let form = match (cell, cell.form()) {
            // The type says that it is no number.
            (Cell::String(_), Form::Number(_)) => Form::Code,
            (_, form) => form,
        };
        let found = match form {
            Form::Missing => return self.missing.add(row, ""),
            Form::Number(number) if !(number as f32).is_finite() => &mut self.not_finite,
            Form::Number(number) => {
                self.sum += number;
                &mut self.numbers
            }
            Form::Code => &mut self.codes,
            Form::Boolean(value, pair) => {
                self.sum += f64::from(u8::from(value));
                self.pairs |= 1 << pair;
                &mut self.booleans
            }
            Form::Date(days) => {
                self.sum += days;
                &mut self.dates
            }
            Form::OtherNumber(kind) => {
                self.other_number.get_or_insert(kind);
                &mut self.other_numbers
            }
            Form::OtherDate => &mut self.other_dates,
            Form::Text => &mut self.texts,
        };
        if let Some(text) = cell.category() {
            found.add(row, &text);
            if let Some(values) = &mut self.values
                && !values.contains(&*text)
            {
                match values.len() < values_max.max(1) && text.len() <= TEXT_BYTES_MAX {
                    true => drop(values.insert(text.into_owned())),
                    false => self.values = None,
                }
            }
        } else {
            // Dates of a typed table.
            found.add(row, "a date");
            self.values = None;
        }
    }

    /// Chooses the encoding of the column, which has the number `at` among the features. Adds what prevents it to `problems`.
    /// `allow_nan`: missing values and infinite numbers are stored as they are.
    pub fn finish(
        self,
        name: &str,
        at: usize,
        options: &EncodingOptions,
        allow_nan: bool,
        problems: &mut Problems,
    ) -> Option<Fitted> {
        // A kind of value counts if most of the values that are present are of it.
        let present = self.rows - self.missing.count;
        let is_constant = self.values.as_ref().is_some_and(|values| values.len() == 1);
        if present == 0 {
            problems.insert(Kind::Empty, at, self.missing);
            return None;
        }
        let replacement = options.missing.replacement(name);
        let has_missing = self.missing.count > 0;
        let lacks_replacement = has_missing && replacement.is_none() && !allow_nan;
        if lacks_replacement {
            problems.insert(Kind::Missing, at, self.missing.clone());
        }
        let numbers = self.numbers.clone().and(&self.not_finite);
        let numeric = numbers.count + self.codes.count + self.other_numbers.count;
        if 2 * self.other_dates.count > present {
            problems.insert(Kind::OtherDate, at, self.other_dates);
            return None;
        }
        if self.other_numbers.count > 0 && 2 * numeric > present {
            problems.insert(Kind::OtherNumber(self.other_number.unwrap_or("a number")), at, self.other_numbers);
            return None;
        }
        let others = self.texts.clone().and(&self.booleans).and(&self.dates).and(&self.other_dates);
        let is_number = numbers.count == present;
        if !is_number && others.count > 0 && 2 * (numbers.count + self.codes.count) > present && numbers.count > 0 {
            problems.insert(Kind::Text, at, others);
            return None;
        }
        if is_number && self.not_finite.count > 0 && !allow_nan {
            problems.insert(Kind::NotFinite, at, self.not_finite);
            return None;
        }
        let is_boolean = self.booleans.count == present && self.pairs.is_power_of_two();
        let is_date = self.dates.count == present;
        if !is_date && 2 * self.dates.count > present {
            let others = self.texts.and(&self.booleans).and(&numbers).and(&self.codes);
            problems.insert(Kind::NotDate, at, others.and(&self.other_dates).and(&self.other_numbers));
            return None;
        }
        let encoding = if is_number || is_boolean || is_date {
            let mean = self.sum / present as f64;
            let missing = match replacement {
                Some(Replacement::Constant(value)) => Missing::Constant(value),
                Some(Replacement::Mean) => Missing::Mean(mean),
                Some(Replacement::Indicator) if has_missing => Missing::Indicator(mean),
                Some(Replacement::Indicator) => Missing::Mean(mean),
                Some(Replacement::Other) | None => Missing::Refused,
            };
            if has_missing && missing == Missing::Refused && !allow_nan {
                problems.insert(Kind::Missing, at, self.missing);
                return None;
            }
            match () {
                () if is_number => Encoding::Number { missing },
                () if is_boolean => Encoding::Boolean { missing },
                () => Encoding::Date { missing },
            }
        } else {
            let Some(values) = self.values else {
                let all = self.texts.and(&self.codes).and(&self.booleans).and(&numbers).and(&self.other_numbers);
                problems.insert(Kind::ManyTexts(options.values_max()), at, all);
                return None;
            };
            let mut values: Vec<String> = values.into_iter().collect();
            values.sort_unstable();
            Encoding::Category { values, form: options.categories.unwrap_or(CategoryForm::OneHot) }
        };
        (!lacks_replacement).then(|| Fitted {
            column: Column { name: name.to_owned(), encoding },
            missing: self.missing.count,
            is_constant,
        })
    }
}
