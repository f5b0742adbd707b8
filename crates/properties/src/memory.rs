//! Memory allocated for an input.

/// Runs `work` on an input of `size` octets and limits its peak memory to `factor` times that size.
///
/// # Panics
///
/// If it allocates more.
pub(crate) fn bounded<T>(size: usize, factor: u64, work: impl FnOnce() -> T) -> T {
    /// Memory allowed for any input: a few objects, tables with an initial size.
    const BASE: u64 = 256 << 10;
    let mut result = None;
    let taken = allocation_counter::measure(|| result = Some(work())).bytes_max;
    let bound = BASE + factor * u64::try_from(size).unwrap_or(u64::MAX);
    assert!(taken <= bound, "{taken} octets taken for an input of {size}");
    result.unwrap_or_else(|| unreachable!("the work was done"))
}
