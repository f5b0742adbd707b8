//! Values in the syntax of Go's `strconv` and `time` packages.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// An invalid value. The error text is Go's, or has the form of Go's texts.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ValueError {
    /// The value is not an integer.
    #[error("strconv.{function}: parsing {}: invalid syntax", quote(text))]
    Syntax {
        /// The Go function that the message names.
        function: &'static str,
        /// The given value.
        text: String,
    },
    /// The number is out of range.
    #[error("strconv.{function}: parsing {}: value out of range", quote(text))]
    Range {
        /// The Go function that the message names.
        function: &'static str,
        /// The given value.
        text: String,
    },
    /// The value is not a boolean.
    #[error("strconv.ParseBool: parsing {}: invalid syntax", quote(text))]
    Bool {
        /// The given value.
        text: String,
    },
    /// The value is not a valid duration.
    #[error("time: {reason} {}", quote(text))]
    Duration {
        /// The description of the mistake. In the message, it comes before the quoted text.
        reason: String,
        /// The given value.
        text: String,
    },
}

impl ValueError {
    fn syntax(function: &'static str, text: &str) -> Self {
        Self::Syntax {
            function,
            text: text.to_owned(),
        }
    }

    fn range(function: &'static str, text: &str) -> Self {
        Self::Range {
            function,
            text: text.to_owned(),
        }
    }

    fn duration(reason: impl Into<String>, text: &str) -> Self {
        Self::Duration {
            reason: reason.into(),
            text: text.to_owned(),
        }
    }

    /// The short text that Go's `flag` package has for this error.
    pub(super) fn short_text(&self) -> &'static str {
        match self {
            Self::Range { .. } => "value out of range",
            Self::Syntax { .. } | Self::Bool { .. } | Self::Duration { .. } => "parse error",
        }
    }
}

/// Parses an integer in the syntax of Go's `strconv.ParseInt` with base 0: decimal, `0x`, `0o`,
/// `0b`, a leading zero for octal, and underscores between digits. The integer must fit into `T`.
pub fn int<T: TryFrom<i128>>(text: &str) -> Result<T, ValueError> {
    let (negative, digits) = split_sign(text);
    let (radix, digits) = split_radix(digits);
    // If an underscore is misplaced, `digits` is empty, which is a syntax error.
    let digits = without_underscores(radix, digits).unwrap_or_default();
    // `from_str_radix` would accept a second sign.
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(ValueError::syntax("ParseInt", text));
    }

    let out_of_range = || ValueError::range("ParseInt", text);
    let size = i128::from_str_radix(&digits, radix).map_err(|_| out_of_range())?;
    T::try_from(if negative { -size } else { size }).map_err(|_| out_of_range())
}

/// Whether a number is negative, and the text after its sign.
fn split_sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// Parses a plain decimal integer as Go's `strconv.Atoi` does: digits, with an optional sign.
pub fn atoi(text: &str) -> Result<i64, ValueError> {
    plain_number("Atoi", text)
}

/// Parses a plain decimal that fits into `T`; `function` is the Go function in the error text.
pub(crate) fn plain_number<T: FromStr>(
    function: &'static str,
    text: &str,
) -> Result<T, ValueError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ValueError::syntax(function, text));
    }
    text.parse().map_err(|_| ValueError::range(function, text))
}

/// The base according to the prefix, and the digits after the prefix.
fn split_radix(digits: &str) -> (u32, &str) {
    let lower = digits.get(..2).map(str::to_ascii_lowercase);
    match (lower.as_deref(), digits.get(2..)) {
        (Some("0x"), Some(rest)) => (16, rest),
        (Some("0o"), Some(rest)) => (8, rest),
        (Some("0b"), Some(rest)) => (2, rest),
        _ => match digits.strip_prefix('0') {
            Some(rest) if !rest.is_empty() => (8, rest),
            _ => (10, digits),
        },
    }
}

/// The digits without underscores. `None` if an underscore is doubled, ends the digits, or begins a
/// decimal number. After a prefix such as `0x`, Go allows an underscore.
fn without_underscores(radix: u32, digits: &str) -> Option<String> {
    let leads = radix == 10 && digits.starts_with('_');
    if leads || digits.ends_with('_') || digits.contains("__") {
        return None;
    }
    Some(digits.chars().filter(|digit| *digit != '_').collect())
}

/// Parses a boolean as Go's `strconv.ParseBool` does.
pub fn boolean(text: &str) -> Result<bool, ValueError> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(ValueError::Bool {
            text: text.to_owned(),
        }),
    }
}

/// A duration in Go's syntax: `1m30s`, `300ms`, `1h`. The longest duration is the largest signed
/// 64-bit number of nanoseconds (292 years). Unlike Go, this type rejects negative durations,
/// because no flag of this type needs them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(pub Duration);

impl GoDuration {
    /// A duration of whole seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl From<GoDuration> for Duration {
    fn from(value: GoDuration) -> Self {
        value.0
    }
}

impl FromStr for GoDuration {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let SignedDuration { negative, size } = text.parse()?;
        if negative && !size.is_zero() {
            return Err(ValueError::duration("negative duration", text));
        }
        Ok(Self(size))
    }
}

/// The period of a repeated task, in the syntax of [`GoDuration`]. A period of zero or less means
/// never, as for Go's `time.Tick`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoPeriod(Option<Duration>);

impl GoPeriod {
    /// A hundred years, which means never, because no process runs that long.
    pub const NEVER: Duration = Duration::from_hours(100 * 365 * 24);

    /// The period as a duration, [`Self::NEVER`] at most.
    pub fn duration(self) -> Duration {
        self.0.map_or(Self::NEVER, |period| period.min(Self::NEVER))
    }
}

impl FromStr for GoPeriod {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let SignedDuration { negative, size } = text.parse()?;
        Ok(Self(Some(size).filter(|size| !negative && !size.is_zero())))
    }
}

/// A duration with its sign.
struct SignedDuration {
    negative: bool,
    size: Duration,
}

impl FromStr for SignedDuration {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (negative, mut rest) = split_sign(text);
        // Only `0` needs no unit.
        if rest == "0" {
            return Ok(Self {
                negative,
                size: Duration::ZERO,
            });
        }
        if rest.is_empty() {
            return Err(ValueError::duration("invalid duration", text));
        }

        let mut total: u64 = 0;
        while !rest.is_empty() {
            let (number, after) = split_while(rest, is_of_number);
            if !number.bytes().any(|byte| byte.is_ascii_digit()) {
                return Err(ValueError::duration("invalid duration", text));
            }
            let (unit, after) = split_while(after, |c| !is_of_number(c));
            if unit.is_empty() {
                return Err(ValueError::duration("missing unit in duration", text));
            }
            let Some(unit_size) = unit_nanoseconds(unit) else {
                let reason = format!("unknown unit {} in duration", quote(unit));
                return Err(ValueError::duration(reason, text));
            };

            // Go keeps durations in a signed number of 64 bits.
            let sum = scale(number, unit_size).and_then(|part| total.checked_add(part));
            total = sum
                .filter(|sum| i64::try_from(*sum).is_ok())
                .ok_or_else(|| ValueError::duration("invalid duration", text))?;
            rest = after;
        }

        Ok(Self {
            negative,
            size: Duration::from_nanos(total),
        })
    }
}

fn is_of_number(c: char) -> bool {
    c == '.' || c.is_ascii_digit()
}

fn split_while(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

fn unit_nanoseconds(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// A decimal number times a unit; `None` if `number` is malformed or the product is out of range.
fn scale(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') {
        return None;
    }
    let whole = if whole.is_empty() {
        0
    } else {
        whole.parse::<u64>().ok()?
    };
    let total = u128::from(whole).checked_mul(u128::from(unit))?;

    // `digit_size` and `small` are in billionths of a nanosecond, because digits below a nanosecond
    // can add up to a nanosecond.
    let mut digit_size = u128::from(unit) * 1_000_000_000;
    let mut small = 0;
    for digit in fraction.bytes() {
        digit_size /= 10;
        small += u128::from(digit - b'0') * digit_size;
    }

    u64::try_from(total + small / 1_000_000_000).ok()
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        match nanos {
            0 => return f.write_str("0s"),
            1..1_000 => return write!(f, "{nanos}ns"),
            1_000..1_000_000 => return write!(f, "{}\u{b5}s", format_decimal(nanos, 1_000)),
            1_000_000..1_000_000_000 => return write!(f, "{}ms", format_decimal(nanos, 1_000_000)),
            _ => {}
        }

        let minutes = nanos / 60_000_000_000;
        if minutes >= 60 {
            write!(f, "{}h", minutes / 60)?;
        }
        if minutes > 0 {
            write!(f, "{}m", minutes % 60)?;
        }
        write!(
            f,
            "{}s",
            format_decimal(nanos % 60_000_000_000, 1_000_000_000)
        )
    }
}

/// `count / unit` without trailing zeros; `unit` is a power of ten.
fn format_decimal(count: u128, unit: u128) -> String {
    let digits = usize::try_from(unit.ilog10()).unwrap_or_default();
    let fraction = format!("{:0digits$}", count % unit);
    match fraction.trim_end_matches('0') {
        "" => (count / unit).to_string(),
        fraction => format!("{}.{fraction}", count / unit),
    }
}

/// Text in double quotes. Quotes, backslashes and characters that cannot be printed are escaped as
/// by Go's `strconv.Quote`. Unlike in Go, combining characters are escaped, too.
pub fn quote(text: &str) -> String {
    use fmt::Write as _;

    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');

    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if c.is_ascii_control() => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            '\'' => out.push(c),
            // `escape_debug` escapes characters that cannot be printed, and combining characters.
            c if c.escape_debug().len() > 1 => {
                let code = u32::from(c);
                let _ = if code > 0xffff {
                    write!(out, "\\U{code:08x}")
                } else {
                    write!(out, "\\u{code:04x}")
                };
            }
            c => out.push(c),
        }
    }

    out.push('"');
    out
}

#[cfg(test)]
mod tests;
