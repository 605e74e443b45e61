//! The types of values that kernels work on. Sums are of f32.

use half::bf16;

/// A type of values of rows.
pub trait Element: Copy + Default + Send + Sync + 'static {
    /// Its value as f32.
    fn to_f32(self) -> f32;
    /// The nearest value of the type.
    fn from_f32(value: f32) -> Self;

    /// The values themselves if they are f32.
    fn f32s(_values: &[Self]) -> Option<&[f32]> {
        None
    }

    /// As [`Element::f32s`], for writing.
    fn as_f32s(_values: &mut [Self]) -> Option<&mut [f32]> {
        None
    }

    /// The values themselves if the type is f32.
    fn of_f32s(_values: &[f32]) -> Option<&[Self]> {
        None
    }
}

impl Element for f32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }

    fn f32s(values: &[f32]) -> Option<&[f32]> {
        Some(values)
    }

    fn as_f32s(values: &mut [f32]) -> Option<&mut [f32]> {
        Some(values)
    }

    fn of_f32s(values: &[f32]) -> Option<&[f32]> {
        Some(values)
    }
}

impl Element for bf16 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        // Rounds to nearest, ties to even, without a branch, so that the compiler can use vector instructions.
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        Self::from_bits(if value.is_nan() { 0x7fc0 } else { rounded as u16 })
    }
}
