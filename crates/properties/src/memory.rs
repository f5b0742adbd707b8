//! Memory that an input makes us take.

/// Runs `work` on an input of `size` octets and holds the memory it has taken at its peak to a multiple of that.
///
/// # Panics
///
/// When it took more.
pub(crate) fn bounded<T>(size: usize, factor: u64, work: impl FnOnce() -> T) -> T {
    /// Memory that any input may take: a few objects, tables that have a first size.
    const BASE: u64 = 256 << 10;
    let mut result = None;
    let taken = allocation_counter::measure(|| result = Some(work())).bytes_max;
    let bound = BASE + factor * u64::try_from(size).unwrap_or(u64::MAX);
    assert!(taken <= bound, "{taken} octets taken for an input of {size}");
    result.unwrap_or_else(|| unreachable!("the work was done"))
}
