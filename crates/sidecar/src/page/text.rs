//! Formats routes, network errors, durations and numbers as text for the page.

/// Words for the names that a route serves. `route` is a stub domain, or `.` for the names outside
/// all stub domains.
pub(super) fn route_words(route: &str) -> &str {
    match route {
        "." => "everything else",
        domain => domain.trim_end_matches('.'),
    }
}

/// The reason in a network error, without the addresses before the reason; the whole error if it
/// does not contain `->SERVER: `. The page shows the server beside the reason, and the address of
/// the sidecar does not help the reader.
pub(super) fn reason<'e>(error: &'e str, server: &str) -> &'e str {
    let addresses = format!("->{server}: ");
    error
        .rsplit_once(&addresses)
        .map_or(error, |(_, reason)| reason)
}

/// A number of seconds in its largest units, two at most.
pub(super) fn largest_two_units(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// A number and its unit. Whole numbers and numbers of 100 or more have no decimals, other numbers
/// of 10 or more have one, and smaller numbers have two.
pub(super) fn number(value: f64, unit: &str) -> String {
    let text = if value.fract() == 0.0 || value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    };
    if unit.is_empty() {
        text
    } else {
        format!("{text} {unit}")
    }
}

#[cfg(test)]
mod tests;
