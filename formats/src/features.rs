//! Feature rows: one vector a node, in f32, f16, bf16 or int8.
//!
//! ```text
//! meta    offset  bytes  what
//!              0     24  the chunk's span
//!             24      4  dim: values a row
//!             28      4  stride: bytes from one row to the next
//!             32      1  dtype: 0 f32, 1 f16, 2 bf16, 3 int8
//!             33      7  zeros
//! payload  r*stride      row r, then zeros up to the stride; the payload starts at a multiple of 4096
//! row                    f32, f16, bf16: dim values
//!                        int8: the row's f32 scale, then dim signed bytes q, with value = scale * q
//! ```
//!
//! Rows are read with `O_DIRECT` in pages of 4 KiB, so what a row costs is the number of pages it touches;
//! [`row_stride`] spends up to an eighth more bytes where that saves more than an eighth of the pages.
//!
//! Conversion is by slices, in loops that the compiler vectorises: it must keep up with several drives.

pub use crate::dtype::SourceDtype;
use crate::{
    FormatError, Result,
    bytes::{Fields, check_payload_length},
    container::{Header, PAGE_BYTES},
    dtype::{FeatureDtype, SCALE_MAX, split_scale},
    span::ChunkSpan,
};

/// The most values a row can have.
pub const DIM_MAX: u32 = 1 << 24;

/// Rows start at multiples of this many bytes, so that an f32 never straddles two pages.
const ROW_ALIGN: u64 = 4;

/// The distance between rows, in bytes, that costs least: the product of size and average number of pages touched,
/// at most an eighth above the row's own size (but a multiple of four).
///
/// A row of 1000 bytes lies 1024 apart and never straddles a page boundary; a row of 5732 bytes, 6144 apart, touches
/// two pages where it would touch up to three; for a row of 100 bytes no padding is worth its space.
///
/// # Panics
/// If `dim` is 0 or above [`DIM_MAX`].
pub fn row_stride(dtype: FeatureDtype, dim: u32) -> u32 {
    assert!((1..=DIM_MAX).contains(&dim), "rows of {dim} values");
    let row = u64::from(dtype.row_bytes(dim));
    let tightest = row.next_multiple_of(ROW_ALIGN);
    let limit = (row + row / 8).max(tightest);
    // Only the largest power of two that divides a stride matters to the pages, so there are few candidates.
    (2..=12)
        .map(|log2| row.next_multiple_of(1 << log2))
        .filter(|&stride| stride <= limit)
        .min_by_key(|&stride| (u128::from(stride) * u128::from(page_touches(row, stride)), stride))
        .expect("the tightest stride is among them") as u32
}

/// How many pages a row touches, summed over 1024 rows, after which offsets in pages repeat.
fn page_touches(row: u64, stride: u64) -> u64 {
    (0..PAGE_BYTES / ROW_ALIGN)
        .map(|r| {
            let start = r * stride % PAGE_BYTES;
            (start + row).div_ceil(PAGE_BYTES)
        })
        .sum()
}

/// The meta of a file `chunk-<i>/features`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeaturesMeta {
    /// Which rows the file holds.
    pub span: ChunkSpan,
    /// How a row is laid out.
    pub layout: FeatureLayout,
}

impl FeaturesMeta {
    /// Length of an encoded meta.
    pub const BYTES: usize = ChunkSpan::BYTES + 16;

    /// The meta of the container file.
    pub fn encode(&self) -> Vec<u8> {
        let mut meta = Vec::with_capacity(Self::BYTES);
        self.span.encode_into(&mut meta);
        meta.extend_from_slice(&self.layout.dim.to_le_bytes());
        meta.extend_from_slice(&self.layout.stride.to_le_bytes());
        meta.push(match self.layout.dtype {
            FeatureDtype::F32 => 0,
            FeatureDtype::F16 => 1,
            FeatureDtype::Bf16 => 2,
            FeatureDtype::Int8 => 3,
        });
        meta.resize(Self::BYTES, 0);
        meta
    }

    /// Decodes and checks the meta, and that place and length of the payload are what it calls for.
    pub fn decode(header: &Header) -> Result<Self> {
        let mut fields = Fields::of(header, Self::BYTES)?;
        let span = ChunkSpan::decode(&mut fields)?;
        let at = fields.offset();
        let (dim, stride) = (fields.u32(), fields.u32());
        let dtype = match fields.u8() {
            0 => FeatureDtype::F32,
            1 => FeatureDtype::F16,
            2 => FeatureDtype::Bf16,
            3 => FeatureDtype::Int8,
            other => {
                return Err(FormatError::invalid(
                    at + 8,
                    format!("there is no feature dtype {other}"),
                ));
            }
        };
        fields.zeros::<7>()?;
        let layout = FeatureLayout { dtype, dim, stride };
        layout.check().map_err(|what| FormatError::invalid(at, what))?;
        if !header.payload_offset.is_multiple_of(PAGE_BYTES) {
            return Err(FormatError::invalid(
                16,
                format!(
                    "features start at {}, which is no multiple of {PAGE_BYTES}",
                    header.payload_offset
                ),
            ));
        }
        check_payload_length(header, span.rows.checked_mul(u64::from(stride)))?;
        Ok(Self { span, layout })
    }

    /// Where row `row` starts, in bytes from the start of the payload.
    #[inline]
    pub fn row_offset(&self, row: u64) -> u64 {
        row * u64::from(self.layout.stride)
    }
}

/// How a row of values is laid out in bytes, and the conversion both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureLayout {
    /// How a value is stored.
    pub dtype: FeatureDtype,
    /// Values a row.
    pub dim: u32,
    /// Bytes from one row to the next.
    pub stride: u32,
}

impl FeatureLayout {
    /// The layout of rows of `dim` values with the stride that [`row_stride`] chooses.
    ///
    /// # Panics
    /// If `dim` is 0 or above [`DIM_MAX`].
    pub fn new(dtype: FeatureDtype, dim: u32) -> Self {
        Self {
            dtype,
            dim,
            stride: row_stride(dtype, dim),
        }
    }

    /// Whether dimension and stride make sense; if not, why.
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        if !(1..=DIM_MAX).contains(&self.dim) {
            return Err(format!("rows have {} values; 1 to {DIM_MAX} are possible", self.dim));
        }
        let row = self.dtype.row_bytes(self.dim);
        if self.stride < row || !u64::from(self.stride).is_multiple_of(ROW_ALIGN) {
            return Err(format!(
                "rows of {} {} values need a stride that is a multiple of {ROW_ALIGN} and at least {row}, not {}",
                self.dim,
                self.dtype.name(),
                self.stride
            ));
        }
        Ok(())
    }

    /// Bytes of a row without the padding.
    pub fn row_bytes(&self) -> usize {
        self.dtype.row_bytes(self.dim) as usize
    }

    /// Writes `values` as one row of `stride` bytes.
    ///
    /// Halves are rounded to nearest, ties to even; what is too large becomes infinite, and not-a-number stays so. In
    /// int8, which has neither, infinities become the row's largest value and not-a-number 0.
    /// [`FeatureLayout::unstorable`] says beforehand how many values that concerns.
    ///
    /// # Panics
    /// If `values` is not `dim` or `row` not `stride` long.
    pub fn encode_row(&self, values: &[f32], row: &mut [u8]) {
        assert_eq!(values.len(), self.dim as usize, "values of a row");
        assert_eq!(row.len(), self.stride as usize, "bytes of a row");
        let (row, padding) = row.split_at_mut(self.row_bytes());
        padding.fill(0);
        self.dtype.encode(values, row);
    }

    /// Reads one row, of which the padding may be missing, into `values`.
    ///
    /// # Panics
    /// If `values` is not `dim` long, or `row` shorter than a row.
    pub fn decode_row(&self, row: &[u8], values: &mut [f32]) {
        assert_eq!(values.len(), self.dim as usize, "values of a row");
        self.dtype.decode(&row[..self.row_bytes()], values);
    }

    /// Writes many rows: `rows` has `stride` bytes for each `dim` values.
    ///
    /// # Panics
    /// If these lengths do not fit each other.
    pub fn encode_rows(&self, values: &[f32], rows: &mut [u8]) {
        let (dim, stride) = (self.dim as usize, self.stride as usize);
        assert!(
            values.len().is_multiple_of(dim) && values.len() / dim * stride == rows.len(),
            "{} values, {} bytes",
            values.len(),
            rows.len()
        );
        for (values, row) in values.chunks_exact(dim).zip(rows.chunks_exact_mut(stride)) {
            self.encode_row(values, row);
        }
    }

    /// Reads many rows: `values` has `dim` values for each `stride` bytes.
    ///
    /// # Panics
    /// If these lengths do not fit each other.
    pub fn decode_rows(&self, rows: &[u8], values: &mut [f32]) {
        let (dim, stride) = (self.dim as usize, self.stride as usize);
        assert!(
            rows.len().is_multiple_of(stride) && rows.len() / stride * dim == values.len(),
            "{} bytes, {} values",
            rows.len(),
            values.len()
        );
        for (row, values) in rows.chunks_exact(stride).zip(values.chunks_exact_mut(dim)) {
            self.decode_row(row, values);
        }
    }

    /// Writes many rows of values of another type: `source` holds `dim` little-endian values for each row.
    ///
    /// Values that are already of the stored type keep their bits; others go by way of f32.
    ///
    /// # Panics
    /// If these lengths do not fit each other.
    pub fn encode_rows_from(&self, dtype: SourceDtype, source: &[u8], rows: &mut [u8]) {
        let (source_row, stride) = (self.dim as usize * dtype.bytes(), self.stride as usize);
        assert!(
            source.len().is_multiple_of(source_row) && source.len() / source_row * stride == rows.len(),
            "{} bytes of {dtype:?} for {} bytes",
            source.len(),
            rows.len()
        );
        let same = matches!(
            (dtype, self.dtype),
            (SourceDtype::F32, FeatureDtype::F32)
                | (SourceDtype::F16, FeatureDtype::F16)
                | (SourceDtype::Bf16, FeatureDtype::Bf16)
        );
        let mut values = vec![0.0; if same { 0 } else { self.dim as usize }];
        for (source, row) in source.chunks_exact(source_row).zip(rows.chunks_exact_mut(stride)) {
            if same {
                row[..source_row].copy_from_slice(source);
                row[source_row..].fill(0);
            } else {
                dtype.to_f32(source, &mut values);
                self.encode_row(&values, row);
            }
        }
    }

    /// How many of `values` would not come back finite: those that are not, and those that overflow the stored type.
    pub fn unstorable(&self, values: &[f32]) -> usize {
        // The least magnitude that rounds to infinity.
        let limit = match self.dtype {
            FeatureDtype::F32 | FeatureDtype::Int8 => f32::INFINITY,
            FeatureDtype::F16 => 65_520.0,
            FeatureDtype::Bf16 => f32::from_bits(0x7f7f_8000),
        };
        // Counted in 32 bits, which vectorises with f32, but a piece at a time, which cannot overflow.
        let count = |piece: &[f32]| piece.iter().map(|v| u32::from(!below(v.abs(), limit))).sum::<u32>();
        values.chunks(1 << 16).map(|piece| count(piece) as usize).sum()
    }

    /// Checks rows that start `offset` bytes into the file: padding is zero, int8 scales are not negative and give
    /// finite values, and no int8 value is -128.
    ///
    /// # Panics
    /// If `rows` is not whole rows.
    pub fn check_rows(&self, rows: &[u8], offset: u64) -> Result<()> {
        assert!(rows.len().is_multiple_of(self.stride as usize), "{} bytes", rows.len());
        for (i, row) in rows.chunks_exact(self.stride as usize).enumerate() {
            let at = offset + i as u64 * u64::from(self.stride);
            let (row, padding) = row.split_at(self.row_bytes());
            if let Some(i) = padding.iter().position(|&byte| byte != 0) {
                return Err(FormatError::invalid(
                    at + (row.len() + i) as u64,
                    "the padding of a feature row is not 0",
                ));
            }
            if self.dtype == FeatureDtype::Int8 {
                let (scale, quanta) = split_scale(row);
                if !(scale <= SCALE_MAX && scale.is_sign_positive()) {
                    return Err(FormatError::invalid(
                        at,
                        format!("the scale of an int8 row is {scale:e}; it must be 0 to {SCALE_MAX:e}"),
                    ));
                }
                if let Some(i) = quanta.iter().position(|&q| q == 0x80) {
                    return Err(FormatError::invalid(
                        at + 4 + i as u64,
                        "an int8 feature is -128; values are symmetric, -127 to 127",
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Whether `magnitude < limit`; not-a-number is not.
#[inline(always)]
fn below(magnitude: f32, limit: f32) -> bool {
    magnitude < limit
}
