//! Sizes as Kubernetes writes them.

use std::cmp::Ordering;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The size in whole bytes, rounded up; `None` if it is malformed, or larger than 2^64 - 1 bytes.
pub fn bytes(quantity: &Quantity) -> Option<u64> {
    let (number, divisor) = fraction(&quantity.0)?;
    u64::try_from(number.div_ceil(divisor)).ok()
}

/// The advice for a text that is not an amount.
pub const NONE: &str = "use an amount such as 500m, 2 or 3Gi";

/// Which of two amounts is larger; `None` if one of the texts is not an amount. Either may be negative.
pub fn compare(a: &str, b: &str) -> Option<Ordering> {
    let ((a, over_a), (b, over_b)) = (signed(a)?, signed(b)?);
    Some(a.checked_mul(over_b)?.cmp(&b.checked_mul(over_a)?))
}

/// Whether the amount is a whole number; `None` if the text is not an amount.
pub fn is_whole(text: &str) -> Option<bool> {
    signed(text).map(|(number, over)| number % over == 0)
}

fn signed(text: &str) -> Option<(i128, i128)> {
    // The API server rejects white space and a second sign.
    let (sign, rest) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    if rest.trim() != rest || sign < 0 && rest.starts_with('+') {
        return None;
    }
    let (number, over) = fraction(rest)?;
    let number = i128::try_from(number).ok()?;
    Some((sign * number, i128::try_from(over).ok()?))
}

/// Whether two texts say the same amount: the API server writes `1024Mi` as `1Gi` and `0.5` as `500m`.
pub fn same(a: &str, b: &str) -> bool {
    let same = |(a, over_a): (u128, u128), (b, over_b): (u128, u128)| {
        Some(a.checked_mul(over_b)? == b.checked_mul(over_a)?)
    };
    let exact = fraction(a).zip(fraction(b));
    a == b || exact.and_then(|(a, b)| same(a, b)).unwrap_or(false)
}

/// The amount as a fraction; `None` if the text is not an amount, or the amount is too large.
///
/// The grammar is that of `resource.Quantity`: a decimal number with a binary suffix (`Ki` to `Ei`), a
/// decimal one (`n` to `E`), or an exponent (`e3`).
fn fraction(text: &str) -> Option<(u128, u128)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '+')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let number = number.strip_prefix('+').unwrap_or(number);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    // Digits beyond a billionth do not matter for a size in bytes, and could overflow.
    let fraction: String = fraction.chars().take(9).collect();
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let divisor = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let (times, over) = factor(suffix)?;
    Some((digits.checked_mul(times)?, divisor.checked_mul(over)?))
}

/// What a suffix multiplies and divides by; `None` if the suffix is unknown.
pub fn factor(suffix: &str) -> Option<(u128, u128)> {
    let binary = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some(power) = binary.iter().position(|s| *s == suffix) {
        return Some((1 << (10 * power), 1));
    }
    let decimal = ["k", "M", "G", "T", "P", "E"];
    if let Some(power) = decimal.iter().position(|s| *s == suffix) {
        return Some((1000u128.pow(u32::try_from(power).ok()? + 1), 1));
    }
    match suffix {
        "m" => return Some((1, 1_000)),
        "u" => return Some((1, 1_000_000)),
        "n" => return Some((1, 1_000_000_000)),
        _ => {}
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = 10u128.checked_pow(exponent.unsigned_abs())?;
    Some(if exponent < 0 { (1, power) } else { (power, 1) })
}

/// The size as Kubernetes writes it: in the largest binary unit that leaves no rest.
pub fn exact(bytes: u64) -> String {
    let units = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut unit = 0;
    let mut rest = bytes;
    while rest != 0 && rest.is_multiple_of(1024) && unit + 1 < units.len() {
        rest /= 1024;
        unit += 1;
    }
    format!("{rest}{}", units[unit])
}

/// A size for people, in a binary unit that leaves at most five digits.
pub fn words(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    let mut rest = bytes;
    while (rest >= 10 * 1024 || rest >= 1024 && rest.is_multiple_of(1024)) && unit + 1 < units.len()
    {
        rest /= 1024;
        unit += 1;
    }
    format!("{rest} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_kubernetes_reads_them() {
        for (text, expected) in [
            ("8Gi", Some(8 << 30)),
            ("256Mi", Some(256 << 20)),
            ("1.5Gi", Some(3 << 29)),
            ("1G", Some(1_000_000_000)),
            ("1e3", Some(1000)),
            ("1500m", Some(2)),
            ("17", Some(17)),
            (".5Ki", Some(512)),
            ("+1k", Some(1000)),
            ("", None),
            ("Gi", None),
            ("-1Gi", None),
            ("1.2.3", None),
            ("8GiB", None),
            ("1e99", None),
            ("99999999Ei", None),
        ] {
            assert_eq!(bytes(&Quantity(text.to_owned())), expected, "{text}");
        }
    }

    #[test]
    fn sizes_are_written_as_kubernetes_writes_them() {
        for (bytes, expected) in [
            (8 << 30, "8Gi"),
            (3 << 29, "1536Mi"),
            (1_000_000_000, "1000000000"),
            (1 << 63, "8Ei"),
            (0, "0"),
        ] {
            assert_eq!(exact(bytes), expected);
        }
    }

    #[test]
    fn amounts_are_the_same_in_other_words() {
        for (a, b) in [
            ("3072Mi", "3Gi"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1e3", "1k"),
            ("1.5Gi", "1536Mi"),
            ("x", "x"),
        ] {
            assert!(same(a, b) && same(b, a), "{a} {b}");
        }
        for (a, b) in [("500m", "600m"), ("1G", "1Gi"), ("x", "1"), ("", "0")] {
            assert!(!same(a, b) && !same(b, a), "{a} {b}");
        }
    }

    #[test]
    fn sizes_are_told_in_few_digits() {
        assert_eq!(words(512), "512 bytes");
        assert_eq!(words(256 << 20), "256 MiB");
        assert_eq!(words(8 << 30), "8 GiB");
        assert_eq!(words((8 << 30) + (1 << 20)), "8193 MiB");
        assert_eq!(words(20 << 30), "20 GiB");
    }
}
