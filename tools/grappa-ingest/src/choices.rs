//! The values of options that are a choice, with their help.

use clap::builder::TypedValueParser;
use grappa_console::options::choices;
use grappa_engine::ingest::{
    CategoryForm, Comments, EdgeFormat, ExternalIds, HeaderLine, LabelType, OnBadLine, TimeUnit,
};

pub(crate) fn edge_formats() -> impl TypedValueParser<Value = EdgeFormat> {
    choices([
        ("auto", "Recognize each file by its name and first bytes", EdgeFormat::Auto),
        ("tsv", "Text, or a matrix of Matrix Market", EdgeFormat::Tsv),
        ("csv", "Text: columns separated by commas", EdgeFormat::Csv),
        ("npy", "NumPy array of integers", EdgeFormat::Npy),
        ("u32", "Pairs of 32-bit little-endian integers", EdgeFormat::U32),
        ("u64", "Pairs of 64-bit little-endian integers", EdgeFormat::U64),
        ("parquet", "Parquet: columns named like src and dst, or as --src and --dst say", EdgeFormat::Parquet),
    ])
}

pub(crate) fn time_units() -> impl TypedValueParser<Value = TimeUnit> {
    choices([
        ("integer", "Numbers of anything, such as steps or years", TimeUnit::Integer),
        ("days", "Days since 1970", TimeUnit::Days),
        ("s", "Seconds since 1970", TimeUnit::Seconds),
        ("ms", "Milliseconds since 1970", TimeUnit::Milliseconds),
        ("us", "Microseconds since 1970", TimeUnit::Microseconds),
        ("ns", "Nanoseconds since 1970", TimeUnit::Nanoseconds),
    ])
}

pub(crate) fn category_forms() -> impl TypedValueParser<Value = CategoryForm> {
    choices([
        ("one-hot", "A dimension for each value", CategoryForm::OneHot),
        ("index", "One dimension", CategoryForm::Index),
    ])
}

pub(crate) fn label_types() -> impl TypedValueParser<Value = LabelType> {
    choices([
        ("classes", "A class, or a zero or one for each class", LabelType::Classes),
        ("partial", "A zero or one for each class, or -1, NaN or nothing where that is unknown", LabelType::Partial),
        ("float", "Numbers, for regression", LabelType::Float),
    ])
}

pub(crate) fn header_lines() -> impl TypedValueParser<Value = HeaderLine> {
    choices([
        ("auto", "Recognize it in each file", HeaderLine::Auto),
        ("yes", "In all files", HeaderLine::Yes),
        ("no", "In no file", HeaderLine::No),
    ])
}

pub(crate) fn comment_lines() -> impl TypedValueParser<Value = Comments> {
    choices([
        ("auto", "Recognize them", Comments::Auto),
        ("yes", "They are", Comments::Yes),
        ("no", "They are not", Comments::No),
    ])
}

pub(crate) fn id_kinds() -> impl TypedValueParser<Value = ExternalIds> {
    choices([
        ("dense", "Integers from 0 with few gaps", ExternalIds::Dense),
        ("sparse", "Any integers from 0 to 2^64 - 2", ExternalIds::Sparse),
        ("string", "Any text", ExternalIds::String),
    ])
}

pub(crate) fn bad_lines() -> impl TypedValueParser<Value = OnBadLine> {
    choices([
        ("fail", "Stop with an error that names file and line", OnBadLine::Fail),
        ("skip", "Leave them out, count them, and list them in STORE.rejects", OnBadLine::Skip),
    ])
}
