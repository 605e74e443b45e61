//! Feature rows: one vector per node, in f32, f16, bf16 or int8.
//!
//! ```text
//! meta    offset  bytes  content
//!              0     24  span of the chunk
//!             24      4  dim: values per feature row
//!             28      4  stride: bytes from one feature row to the next
//!             32      1  dtype: 0 f32, 1 f16, 2 bf16, 3 int8
//!             33      1  1 if the features of its node follow each row; otherwise 0
//!             34      6  zeros
//! payload  r*stride      feature row r, then zeros up to the stride; the payload starts at a multiple of 4096
//! row                    f32, f16, bf16: dim values
//!                        int8: an f32 scale, then dim signed bytes q, with value = scale * q
//!                        then, if features follow: zeros up to a multiple of 8, and the features in the same encoding
//! ```
//!
//! Feature rows are read with `O_DIRECT` in pages of 4 KiB, so the cost of a row is the number of pages that it
//! touches. [`row_stride`] adds up to an eighth of padding where that saves more than an eighth of the pages.

use std::ops::Range;

pub use crate::dtype::ElementType;
use crate::{
    FormatError, Result,
    bytes::{Fields, check_payload_length},
    container::{Header, PAGE_BYTES},
    dtype::{FeatureDtype, SCALE_MAX, split_scale},
    error::invalid_if,
    span::ChunkSpan,
};

/// The maximum number of values in a feature row.
pub const DIM_MAX: u32 = 1 << 24;

/// Feature rows start at multiples of this many bytes, so an f32 never crosses a page boundary.
const ROW_ALIGN: u64 = 4;

/// Features that follow a row start at multiples of this many bytes, so that memory can take them word by word.
const FEATURES_ALIGN: usize = 8;

/// The best distance between feature rows, in bytes: the one with the least product of stride and average number of
/// pages per row. It is a multiple of four, and at most an eighth above the size of a row.
///
/// Rows of 1000 bytes get a stride of 1024 and never cross a page boundary. Rows of 5732 bytes get 6144 and touch two
/// pages instead of up to three. For rows of 100 bytes, no padding is worth its space.
///
/// # Panics
/// If `dim` is 0 or above [`DIM_MAX`].
///
/// ```
/// use grappa_formats::{features::row_stride, manifest::FeatureDtype};
///
/// assert_eq!(row_stride(FeatureDtype::F32, 250), 1024);
/// assert_eq!(row_stride(FeatureDtype::F32, 25), 100);
/// ```
pub fn row_stride(dtype: FeatureDtype, dim: u32) -> u32 {
    assert!((1..=DIM_MAX).contains(&dim), "rows of {dim} values");
    stride_of(dtype.row_bytes(dim).into())
}

/// The same for rows of `row` bytes.
fn stride_of(row: u64) -> u32 {
    let tightest = row.next_multiple_of(ROW_ALIGN);
    let limit = (row + row / 8).max(tightest);
    // The number of pages depends only on the largest power of two that divides the stride, so candidates are few.
    (2..=12)
        .map(|log2| row.next_multiple_of(1 << log2))
        .filter(|&stride| stride <= limit)
        .min_by_key(|&stride| (u128::from(stride) * u128::from(page_touches(row, stride)), stride))
        .expect("the tightest stride is among them") as u32
}

/// Number of pages that a row touches, summed over 1024 rows. After those, offsets inside pages repeat.
fn page_touches(row: u64, stride: u64) -> u64 {
    (0..PAGE_BYTES / ROW_ALIGN)
        .map(|r| {
            let start = r * stride % PAGE_BYTES;
            (start + row).div_ceil(PAGE_BYTES)
        })
        .sum()
}

/// The meta of a file `chunk-<i>/features`, or of pre-aggregated features.
///
/// ```
/// use grappa_formats::{
///     ChunkId, ChunkSpan,
///     chunks::ChunkMap,
///     container::{FileKind, decode_file, encode_file},
///     features::{FeatureLayout, FeaturesMeta},
///     manifest::FeatureDtype,
/// };
///
/// let layout = FeatureLayout::new(FeatureDtype::F32, 2);
/// let mut rows = vec![0; 2 * layout.stride as usize];
/// layout.encode_rows(&[1.0, 2.0, 3.0, 4.0], &mut rows);
/// let span = ChunkSpan::for_chunk(&ChunkMap::uniform(2, 1), ChunkId(0));
/// let meta = FeaturesMeta { span, layout, with_features: false };
/// let (file, _) = encode_file(FileKind::FEATURES, meta.encode(), &rows);
///
/// let (header, payload) = decode_file(&file, FileKind::FEATURES)?;
/// let meta = FeaturesMeta::decode(&header)?;
/// let mut values = [0.0; 2];
/// meta.layout.decode_row(&payload[meta.row_offset(1) as usize..], &mut values);
/// assert_eq!(values, [3.0, 4.0]);
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeaturesMeta {
    /// The nodes of the file.
    pub span: ChunkSpan,
    /// The layout of a feature row.
    pub layout: FeatureLayout,
    /// Whether the features of its node follow each row, in the same encoding and at
    /// [`FeatureLayout::features_offset`]. Only pre-aggregated features have them.
    pub with_features: bool,
}

impl FeaturesMeta {
    /// Length of an encoded meta.
    pub const BYTES: usize = ChunkSpan::BYTES + 16;

    /// The meta of the container file.
    pub fn encode(&self) -> Vec<u8> {
        let mut meta = Vec::with_capacity(Self::BYTES);
        self.span.encode_into(&mut meta);
        self.layout.encode_into(&mut meta);
        meta.push(self.with_features.into());
        meta.resize(Self::BYTES, 0);
        meta
    }

    /// Decodes and checks the meta, and checks start and length of the payload against it.
    pub fn decode(header: &Header) -> Result<Self> {
        let mut fields = Fields::from_header(header, Self::BYTES)?;
        let span = ChunkSpan::decode(&mut fields)?;
        let at = fields.offset();
        let layout = FeatureLayout::decode(&mut fields)?;
        let with_features = match fields.u8() {
            0 => false,
            1 => true,
            other => {
                let problem = format!("a feature row has {other} other rows behind it; it may have 1");
                return Err(FormatError::invalid(at + 9, problem));
            }
        };
        fields.zeros::<6>()?;
        layout.check(with_features, at)?;
        invalid_if!(
            !header.payload_offset.is_multiple_of(PAGE_BYTES),
            16,
            "features start at {}, which is no multiple of {PAGE_BYTES}",
            header.payload_offset
        );
        check_payload_length(header, span.rows.checked_mul(u64::from(layout.stride)))?;
        Ok(Self { span, layout, with_features })
    }

    /// Whether rows have bytes that are no values.
    pub fn is_padded(&self) -> bool {
        let layout = &self.layout;
        let gap = self.with_features && layout.features_offset() > layout.row_bytes();
        gap || layout.bytes(self.with_features) < layout.stride as usize
    }

    /// Start of feature row `row`, in bytes from the start of the payload.
    #[inline]
    pub fn row_offset(&self, row: u64) -> u64 {
        row * u64::from(self.layout.stride)
    }
}

/// The layout of a feature row in bytes, and conversion to and from f32.
///
/// ```
/// use grappa_formats::{features::FeatureLayout, manifest::FeatureDtype};
///
/// let layout = FeatureLayout::new(FeatureDtype::F16, 3);
/// let mut row = vec![0; layout.stride as usize];
/// layout.encode_row(&[1.0, -2.5, 0.1], &mut row);
/// let mut values = [0.0; 3];
/// layout.decode_row(&row, &mut values);
/// assert_eq!(values, [1.0, -2.5, 0.099_975_586]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureLayout {
    /// The type of the stored values.
    pub dtype: FeatureDtype,
    /// Values per row.
    pub dim: u32,
    /// Bytes from one row to the next.
    pub stride: u32,
}

impl FeatureLayout {
    /// The layout of feature rows of `dim` values, with the stride from [`row_stride`].
    ///
    /// # Panics
    /// If `dim` is 0 or above [`DIM_MAX`].
    pub fn new(dtype: FeatureDtype, dim: u32) -> Self {
        Self { dtype, dim, stride: row_stride(dtype, dim) }
    }

    /// The layout of feature rows of `dim` values that are followed by the features of their nodes.
    ///
    /// # Panics
    /// If `dim` is 0 or above [`DIM_MAX`].
    pub fn with_features(dtype: FeatureDtype, dim: u32) -> Self {
        let layout = Self::new(dtype, dim);
        Self { stride: stride_of(layout.bytes(true) as u64), ..layout }
    }

    /// Appends dim, stride and dtype to a meta.
    pub(crate) fn encode_into(&self, meta: &mut Vec<u8>) {
        meta.extend_from_slice(&self.dim.to_le_bytes());
        meta.extend_from_slice(&self.stride.to_le_bytes());
        meta.push(self.dtype as u8);
    }

    /// Reads dim, stride and dtype of a meta. [`FeatureLayout::check`] checks them.
    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<Self> {
        let (dim, stride) = (fields.u32(), fields.u32());
        let at = fields.offset();
        let number = fields.u8();
        let Some(&dtype) = FeatureDtype::ALL.get(usize::from(number)) else {
            return Err(FormatError::invalid(at, format!("there is no feature dtype {number}")));
        };
        Ok(Self { dtype, dim, stride })
    }

    /// Checks that dimension and stride, which are at byte `at`, are valid.
    pub(crate) fn check(&self, with_features: bool, at: u64) -> Result<()> {
        let Self { dim, dtype, stride } = *self;
        invalid_if!(!(1..=DIM_MAX).contains(&dim), at, "rows have {dim} values; 1 to {DIM_MAX} are possible");
        let row = self.bytes(with_features);
        invalid_if!(
            (stride as usize) < row || !u64::from(stride).is_multiple_of(ROW_ALIGN),
            at,
            "rows of {dim} {} values need a stride that is a multiple of {ROW_ALIGN} and at least {row}, not {stride}",
            dtype.name()
        );
        Ok(())
    }

    /// Bytes of a feature row without padding.
    pub fn row_bytes(&self) -> usize {
        self.dtype.row_bytes(self.dim) as usize
    }

    /// The offset of the features that follow a row.
    pub fn features_offset(&self) -> usize {
        self.row_bytes().next_multiple_of(FEATURES_ALIGN)
    }

    /// Bytes of a row and the features that may follow it, without padding behind them.
    fn bytes(&self, with_features: bool) -> usize {
        match with_features {
            true => self.features_offset() + self.row_bytes(),
            false => self.row_bytes(),
        }
    }

    /// Writes `values` as one feature row of `stride` bytes.
    ///
    /// f16 and bf16 round to nearest, ties to even. Values that are too large become infinite, and NaN stays NaN. int8
    /// has neither: infinities become the largest value of the row, and NaN becomes 0. [`FeatureLayout::unstorable`]
    /// counts the affected values.
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

    /// Reads one feature row into `values`. The padding may be missing.
    ///
    /// # Panics
    /// If `values` is not `dim` long, or `row` is shorter than [`FeatureLayout::row_bytes`].
    pub fn decode_row(&self, row: &[u8], values: &mut [f32]) {
        assert_eq!(values.len(), self.dim as usize, "values of a row");
        self.dtype.decode(&row[..self.row_bytes()], values);
    }

    /// Adds the values of a feature row to `sums`. The same as decoding it first, but in one loop.
    ///
    /// # Panics
    /// If `sums` does not have `dim` values, or `row` is too short.
    #[inline]
    pub fn add_row(&self, row: &[u8], sums: &mut [f32]) {
        assert_eq!(sums.len(), self.dim as usize, "values of a row");
        self.dtype.add(&row[..self.row_bytes()], sums);
    }

    /// Writes several feature rows: `stride` bytes of `rows` for every `dim` values.
    ///
    /// # Panics
    /// If the lengths do not match.
    pub fn encode_rows(&self, values: &[f32], rows: &mut [u8]) {
        let (dim, stride) = (self.dim as usize, self.stride as usize);
        assert!(
            values.len().is_multiple_of(dim) && values.len() / dim * stride == rows.len(),
            "{} values, {} bytes",
            values.len(),
            rows.len()
        );
        if self.is_dense() {
            return self.dtype.encode(values, rows);
        }
        for (values, row) in values.chunks_exact(dim).zip(rows.chunks_exact_mut(stride)) {
            self.encode_row(values, row);
        }
    }

    /// As [`encode_rows`](Self::encode_rows), with a row of `features` behind each row of values. Those are encoded as
    /// here, and start every `feature_stride` bytes.
    ///
    /// # Panics
    /// If the lengths do not match, or the stride has no room for both.
    pub fn encode_with_features(&self, values: &[f32], features: &[u8], feature_stride: usize, rows: &mut [u8]) {
        let (dim, stride) = (self.dim as usize, self.stride as usize);
        let (row_bytes, features_offset) = (self.row_bytes(), self.features_offset());
        let count = values.len() / dim;
        assert_eq!(
            (values.len(), features.len(), rows.len()),
            (count * dim, count * feature_stride, count * stride),
            "as many rows of each"
        );
        let pairs = values.chunks_exact(dim).zip(features.chunks_exact(feature_stride));
        for ((values, features), row) in pairs.zip(rows.chunks_exact_mut(stride)) {
            row.fill(0);
            self.dtype.encode(values, &mut row[..row_bytes]);
            row[features_offset..][..row_bytes].copy_from_slice(&features[..row_bytes]);
        }
    }

    /// Reads several feature rows: `dim` values for every `stride` bytes of `rows`.
    ///
    /// # Panics
    /// If the lengths do not match.
    pub fn decode_rows(&self, rows: &[u8], values: &mut [f32]) {
        let (dim, stride) = (self.dim as usize, self.stride as usize);
        assert!(
            rows.len().is_multiple_of(stride) && rows.len() / stride * dim == values.len(),
            "{} bytes, {} values",
            rows.len(),
            values.len()
        );
        if self.is_dense() {
            return self.dtype.decode(rows, values);
        }
        for (row, values) in rows.chunks_exact(stride).zip(values.chunks_exact_mut(dim)) {
            self.decode_row(row, values);
        }
    }

    /// Whether rows are values alone, without scales or padding. Then many rows are encoded as one.
    fn is_dense(&self) -> bool {
        self.dtype != FeatureDtype::Int8 && self.row_bytes() == self.stride as usize
    }

    /// Number of values that would not be finite after a round trip: those that are not finite now, and those that
    /// overflow the stored type.
    pub fn unstorable(&self, values: &[f32]) -> usize {
        // The smallest magnitude that rounds to infinity.
        let limit = match self.dtype {
            FeatureDtype::F32 | FeatureDtype::Int8 => f32::INFINITY,
            FeatureDtype::F16 => 65_520.0,
            FeatureDtype::Bf16 => f32::from_bits(0x7f7f_8000),
        };
        // 32-bit counters vectorize together with f32. One counter per piece cannot overflow.
        let counts =
            values.chunks(1 << 16).map(|piece| piece.iter().map(|v| u32::from(!below(v.abs(), limit))).sum::<u32>());
        counts.map(|count| count as usize).sum()
    }

    /// Checks feature rows that start at byte `offset` of the file, and the features that may follow them. Padding must
    /// be zero. In int8, scales must not be negative and must give finite values, and no value may be -128.
    ///
    /// # Panics
    /// If `rows` does not hold whole rows.
    pub fn check_rows(&self, rows: &[u8], offset: u64, with_features: bool) -> Result<()> {
        assert!(rows.len().is_multiple_of(self.stride as usize), "{} bytes", rows.len());
        let row_bytes = self.row_bytes();
        let features = with_features.then(|| self.features_offset());
        for (i, row) in rows.chunks_exact(self.stride as usize).enumerate() {
            let at = offset + i as u64 * u64::from(self.stride);
            let mut end = 0;
            for start in [Some(0), features].into_iter().flatten() {
                check_padding(row, end..start, at)?;
                end = start + row_bytes;
                if self.dtype == FeatureDtype::Int8 {
                    check_int8(&row[start..end], at + start as u64)?;
                }
            }
            check_padding(row, end..row.len(), at)?;
        }
        Ok(())
    }
}

/// Checks that some bytes of a row at byte `at` of the file are 0.
fn check_padding(row: &[u8], mut bytes: Range<usize>, at: u64) -> Result<()> {
    match bytes.find(|&i| row[i] != 0) {
        Some(i) => Err(FormatError::invalid(at + i as u64, "the padding of a feature row is not 0")),
        None => Ok(()),
    }
}

/// Checks an int8 row at byte `at` of the file.
fn check_int8(row: &[u8], at: u64) -> Result<()> {
    let (scale, quanta) = split_scale(row);
    invalid_if!(
        !(scale <= SCALE_MAX && scale.is_sign_positive()),
        at,
        "the scale of an int8 row is {scale:e}; it must be 0 to {SCALE_MAX:e}"
    );
    match quanta.iter().position(|&q| q == 0x80) {
        Some(i) => {
            Err(FormatError::invalid(at + 4 + i as u64, "an int8 feature is -128; values are symmetric, -127 to 127"))
        }
        None => Ok(()),
    }
}

/// Whether `magnitude < limit`. False for NaN.
#[inline(always)]
fn below(magnitude: f32, limit: f32) -> bool {
    magnitude < limit
}
