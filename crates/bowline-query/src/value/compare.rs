//! Equality and comparison, with Cypher's third answer: unknown.
//!
//! `None` is unknown. A list or a map that contains a null is unknown only if nothing else in it decides.

use std::cmp::Ordering;

use super::Value;

impl Value {
    /// Whether two values are equal, or `None` if that is unknown.
    ///
    /// ```
    /// use bowline_query::Value;
    ///
    /// let with_null = Value::list(vec![Value::Int(1), Value::Null]);
    /// assert_eq!(with_null.equals(&with_null), None);
    /// assert_eq!(with_null.equals(&Value::list(vec![Value::Int(2), Value::Null])), Some(false));
    /// ```
    pub fn equals(&self, other: &Value) -> Option<bool> {
        match (self, other) {
            (Value::Null, _) | (_, Value::Null) => None,
            (Value::List(a), Value::List(b)) => {
                if a.len() != b.len() {
                    return Some(false);
                }
                all(a.iter().zip(b.iter()).map(|(x, y)| x.equals(y)))
            }
            (Value::Map(a), Value::Map(b)) => {
                if a.len() != b.len() || !a.keys().eq(b.keys()) {
                    return Some(false);
                }
                all(a.values().zip(b.values()).map(|(x, y)| x.equals(y)))
            }
            (Value::Float(a), Value::Float(b)) => Some(a == b),
            (Value::Int(a), Value::Float(b)) | (Value::Float(b), Value::Int(a)) => {
                Some(int_with_float(*a, *b) == Some(Ordering::Equal))
            }
            _ => Some(self.order(other).is_eq()),
        }
    }

    /// How two values compare by `<`, or `None` if they cannot be compared. `Some(None)` is a pair of numbers one of
    /// which is not a number: every comparison of it is false.
    ///
    /// ```
    /// use bowline_query::Value;
    ///
    /// assert!(Value::Int(1).compares(&Value::Float(1.5)).flatten().unwrap().is_lt());
    /// assert_eq!(Value::Int(1).compares(&Value::from("1")), None);
    /// ```
    pub fn compares(&self, other: &Value) -> Option<Option<Ordering>> {
        match (self, other) {
            (Value::Int(a), Value::Int(b)) => Some(Some(a.cmp(b))),
            (Value::Float(a), Value::Float(b)) => Some(a.partial_cmp(b)),
            (Value::Int(a), Value::Float(b)) => Some(int_with_float(*a, *b)),
            (Value::Float(a), Value::Int(b)) => Some(int_with_float(*b, *a).map(Ordering::reverse)),
            (Value::Text(_), Value::Text(_))
            | (Value::Bytes(_), Value::Bytes(_))
            | (Value::Bool(_), Value::Bool(_))
            | (Value::Date(_), Value::Date(_))
            | (Value::LocalTime(_), Value::LocalTime(_))
            | (Value::Time(_), Value::Time(_))
            | (Value::LocalDateTime(_), Value::LocalDateTime(_)) => Some(Some(self.order(other))),
            (Value::DateTime(a), Value::DateTime(b)) => {
                Some(Some(a.timestamp().cmp(&b.timestamp())))
            }
            (Value::List(a), Value::List(b)) => {
                for (x, y) in a.iter().zip(b.iter()) {
                    match x.equals(y) {
                        Some(true) => {}
                        Some(false) => return x.compares(y),
                        None => return None,
                    }
                }
                Some(Some(a.len().cmp(&b.len())))
            }
            _ => None,
        }
    }
}

/// True if all are, false if one is not, else unknown.
fn all(answers: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut result = Some(true);
    for answer in answers {
        match answer {
            Some(true) => {}
            Some(false) => return Some(false),
            None => result = None,
        }
    }
    result
}

/// Compares without rounding: an integer above 2^53 is not equal to the float that it would become.
pub(super) fn int_with_float(int: i64, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    // 2^63 is exact in a float; i64::MAX is not.
    if float >= 9_223_372_036_854_775_808.0 {
        return Some(Ordering::Less);
    }
    if float < -9_223_372_036_854_775_808.0 {
        return Some(Ordering::Greater);
    }
    let whole = float.trunc();
    Some(int.cmp(&(whole as i64)).then_with(|| {
        if float > whole {
            Ordering::Less
        } else if float < whole {
            Ordering::Greater
        } else {
            Ordering::Equal
        }
    }))
}
