//! Limits of the memory that parsing an input may allocate.

/// Runs `work` on an input of `size` octets. Checks that the peak memory is at most 256 KiB plus
/// `factor` times `size`.
///
/// # Panics
///
/// If the peak is higher.
pub(crate) fn bounded<T>(size: usize, factor: u64, work: impl FnOnce() -> T) -> T {
    /// Memory allowed for any input, in octets.
    const BASE: u64 = 256 << 10;
    let mut result = None;
    let taken = allocation_counter::measure(|| result = Some(work())).bytes_max;
    let bound = BASE + factor * u64::try_from(size).unwrap_or(u64::MAX);
    assert!(
        taken <= bound,
        "the peak memory for an input of {size} octets is {taken} octets, more than the limit of {bound}"
    );
    result.unwrap_or_else(|| unreachable!("`work` has not run"))
}
