//! Options whose values are names.

/// Implements `Display` and `FromStr` for an enum with `ALL` variants, each with a `name()`.
macro_rules! parse_names {
    ($name:ident, $kind:literal, $known:literal) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = grappa_io::Error;

            fn from_str(name: &str) -> grappa_io::Result<Self> {
                let found = Self::ALL.into_iter().find(|one| one.name() == name);
                found.ok_or_else(|| grappa_io::Error::UnknownName { kind: $kind, name: name.to_owned(), known: $known })
            }
        }
    };
}
pub(crate) use parse_names;
