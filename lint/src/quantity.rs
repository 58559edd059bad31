//! Sizes in rules: what Kubernetes adds to CEL as `quantity`.

use std::cmp::Ordering;

use cel::objects::Opaque;

/// A size in billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(i128);

impl Opaque for Size {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.Quantity"
    }
}

impl Size {
    /// Reads a size as `resource.Quantity` writes it; `None` if the text is not a size. What is too large for the
    /// type is the largest, as in Kubernetes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') {
            return None;
        }
        // Beyond a billionth nothing counts.
        let fraction: String = fraction.chars().take(9).collect();
        let digits: i128 = format!("{whole}{fraction:0<9}")
            .parse()
            .unwrap_or(i128::MAX);
        let (times, over) = bellwether_ensemble::quantity::factor(suffix)?;
        let times = i128::try_from(times).unwrap_or(i128::MAX);
        let over = i128::try_from(over).unwrap_or(i128::MAX);
        let size = digits.saturating_mul(times) / over;
        Some(Self(if negative { -size } else { size }))
    }

    /// The size as an integer, if it is one that fits.
    pub(crate) fn whole(self) -> Option<i64> {
        let billion = 1_000_000_000;
        let whole = self.0 % billion == 0;
        whole
            .then(|| i64::try_from(self.0 / billion).ok())
            .flatten()
    }

    /// Both together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// -1, 0 or 1, as the function `compareTo` says it.
    pub(crate) fn compare(self, other: Self) -> i64 {
        match self.cmp(&other) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_compared_whatever_they_are_written_in() {
        for (one, other, expected) in [
            ("1Gi", "1024Mi", 0),
            ("1Gi", "1G", 1),
            ("1500m", "1.5", 0),
            ("-1Gi", "0", -1),
            ("1e3", "1k", 0),
            ("20Gi", "8Gi", 1),
            ("+5", "5", 0),
        ] {
            let sizes = Size::parse(one).zip(Size::parse(other)).unwrap();
            assert_eq!(sizes.0.compare(sizes.1), expected, "{one} {other}");
        }
        for text in ["", "large", "Gi", "1.2.3", "1 Gi", "1gi", "--1", "."] {
            assert_eq!(Size::parse(text), None, "{text}");
        }
        assert!(Size::parse("99999999999999999999999999Ei").is_some());
    }
}
