//! The header of a `.npy` file: a Python dictionary literal with `descr`, `fortran_order` and `shape`.

use grappa_formats::features::ElementType;

use crate::{conversions::Conversion, messages::shown};

/// The element type that a `descr` such as `<i8` names, and whether elements are big-endian. Or why it is refused, and the command that
/// converts the array.
pub(super) fn element_type(descr: &str) -> Result<(ElementType, bool), (String, Conversion)> {
    let (order, kind) = match descr.as_bytes() {
        [order @ (b'<' | b'>' | b'=' | b'|'), ..] => (*order, &descr[1..]),
        _ => (b'|', descr),
    };
    let element = match kind {
        "b1" => ElementType::Bool,
        "i1" => ElementType::I8,
        "i2" => ElementType::I16,
        "i4" => ElementType::I32,
        "i8" => ElementType::I64,
        "u1" => ElementType::U8,
        "u2" => ElementType::U16,
        "u4" => ElementType::U32,
        "u8" => ElementType::U64,
        "f2" => ElementType::F16,
        "f4" => ElementType::F32,
        "f8" => ElementType::F64,
        _ if descr == RECORDS => return Err(("the array has named fields".to_owned(), Conversion::RecordsToText)),
        "O" => return Err(("the array holds Python objects (dtype object)".to_owned(), Conversion::ArrayToText)),
        _ if kind.starts_with(['U', 'S']) => {
            let problem = format!("the array holds strings (dtype '{descr}'), and .npy is read for numbers only");
            return Err((problem, Conversion::ArrayToText));
        }
        _ => {
            let conversion = match kind.as_bytes() {
                [b'c', ..] => Conversion::ComplexArray,
                [b'm' | b'M', ..] => Conversion::TimeArray,
                b"V2" => Conversion::Bfloat16Array,
                _ => Conversion::WideArray,
            };
            return Err((format!("elements of dtype '{descr}' are not read"), conversion));
        }
    };
    Ok((element, order == b'>' && element.bytes() > 1))
}

/// The type of elements that are records.
const RECORDS: &str = "[records]";

/// A parsed piece of a header, or what is wrong with it.
type Parsed<T> = Result<T, String>;

pub(super) struct Header {
    pub descr: String,
    pub fortran_order: bool,
    pub shape: Vec<u64>,
}

impl Header {
    /// Parses the dictionary literal in the forms that NumPy and compatible programs write.
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
        let mut literal = Literal { rest: text };
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        literal.expect('{')?;
        while !literal.take('}') {
            let key = literal.string()?;
            literal.expect(':')?;
            match key {
                "descr" => descr = Some(literal.descr()?.to_owned()),
                "fortran_order" => fortran_order = Some(literal.boolean()?),
                "shape" => shape = Some(literal.tuple()?),
                _ => return Err(format!("entry '{key}' is not known")),
            }
            if !literal.take(',') {
                literal.expect('}')?;
                break;
            }
        }
        Ok(Self {
            descr: descr.ok_or("entry 'descr' is missing")?,
            fortran_order: fortran_order.ok_or("entry 'fortran_order' is missing")?,
            shape: shape.ok_or("entry 'shape' is missing")?,
        })
    }
}

/// The unparsed rest of a Python literal.
struct Literal<'a> {
    rest: &'a str,
}

impl<'a> Literal<'a> {
    fn take(&mut self, token: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: char) -> Parsed<()> {
        if self.take(token) {
            Ok(())
        } else {
            Err(format!("expected '{token}', found {}", shown(self.rest.as_bytes())))
        }
    }

    fn string(&mut self) -> Parsed<&'a str> {
        for quote in ['\'', '"'] {
            if self.take(quote) {
                let (string, rest) = self.rest.split_once(quote).ok_or("a string does not end")?;
                self.rest = rest;
                return Ok(string);
            }
        }
        Err(format!("expected a string, found {}", shown(self.rest.as_bytes())))
    }

    /// Parses the type: a string, or a list if the elements are records.
    fn descr(&mut self) -> Parsed<&'a str> {
        if !self.take('[') {
            return self.string();
        }
        let end = self.rest.find("],").ok_or("a list of fields does not end")?;
        self.rest = &self.rest[end + 1..];
        Ok(RECORDS)
    }

    fn word(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn boolean(&mut self) -> Parsed<bool> {
        match self.word() {
            "True" => Ok(true),
            "False" => Ok(false),
            other => Err(format!("expected True or False, found {}", shown(other.as_bytes()))),
        }
    }

    fn tuple(&mut self) -> Parsed<Vec<u64>> {
        let mut numbers = Vec::new();
        self.expect('(')?;
        while !self.take(')') {
            let word = self.word();
            // Python 2 wrote long integers with an L.
            let number = word.strip_suffix('L').unwrap_or(word);
            numbers.push(number.parse().map_err(|_| format!("expected a length, found {}", shown(word.as_bytes())))?);
            if !self.take(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(numbers)
    }
}
