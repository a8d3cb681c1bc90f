//! Label selectors with the meaning the API server gives them.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_api::policy::{LabelOperator, LabelRequirement, LabelSelector};

/// Why a selector means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct SelectorError {
    /// Where inside the selector, for example `matchExpressions[1]`.
    pub field: String,
    /// What is wrong there.
    pub problem: SelectorProblem,
}

/// What is wrong with one requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorProblem {
    /// The key is no label key.
    #[error("the key is not a label key")]
    Key,
    /// The value can be on no label.
    #[error("a value is not a label value")]
    Value,
    /// `In` and `NotIn` need values.
    #[error("the operators In and NotIn need values")]
    NoValues,
    /// `Exists` and `DoesNotExist` take none.
    #[error("the operators Exists and DoesNotExist take no values")]
    Values,
    /// More requirements or values than a selector may have.
    #[error("a selector has at most {MAX_REQUIREMENTS} requirements of {MAX_VALUES} values")]
    TooMany,
}

/// Requirements of one selector, the same number as in the schema.
const MAX_REQUIREMENTS: usize = 64;
/// Values of one requirement.
const MAX_VALUES: usize = 256;

/// What the texts of a selector are compared with; annotations allow any value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Labels: values have at most 63 characters of a small alphabet.
    Labels,
    /// Annotations: any value.
    Annotations,
}

/// A checked selector. The default one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Box<[Requirement]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
}

impl Selector {
    /// Checks a selector as the API server would. One that can never match by a typing error is an error, not an empty selection.
    pub fn compile(selector: &LabelSelector, of: Of) -> Result<Self, SelectorError> {
        let in_labels = |problem| SelectorError { field: "matchLabels".to_owned(), problem };
        if selector.match_labels.len() > MAX_REQUIREMENTS {
            return Err(in_labels(SelectorProblem::TooMany));
        }
        let mut requirements = Vec::with_capacity(selector.match_labels.len() + selector.match_expressions.len());
        for (key, value) in &selector.match_labels {
            check_key(key).and_then(|()| check_value(value, of)).map_err(in_labels)?;
            requirements.push(Requirement { key: key.clone(), test: Test::In(BTreeSet::from([value.clone()])) });
        }
        for (index, expression) in selector.match_expressions.iter().enumerate() {
            let here = |problem| SelectorError { field: format!("matchExpressions[{index}]"), problem };
            if index >= MAX_REQUIREMENTS {
                return Err(here(SelectorProblem::TooMany));
            }
            requirements.push(Requirement::compile(expression, of).map_err(here)?);
        }
        Ok(Self { requirements: requirements.into() })
    }

    /// Whether all requirements hold.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|Requirement { key, test }| match (test, labels.get(key)) {
            (Test::In(values), Some(value)) => values.contains(value),
            (Test::In(_) | Test::Exists, None) | (Test::DoesNotExist, Some(_)) => false,
            (Test::NotIn(values), Some(value)) => !values.contains(value),
            (Test::NotIn(_) | Test::DoesNotExist, None) | (Test::Exists, Some(_)) => true,
        })
    }
}

impl Requirement {
    fn compile(expression: &LabelRequirement, of: Of) -> Result<Self, SelectorProblem> {
        check_key(&expression.key)?;
        if expression.values.len() > MAX_VALUES {
            return Err(SelectorProblem::TooMany);
        }
        for value in &expression.values {
            check_value(value, of)?;
        }
        let values: BTreeSet<String> = expression.values.iter().cloned().collect();
        let test = match (expression.operator, values.is_empty()) {
            (LabelOperator::In | LabelOperator::NotIn, true) => return Err(SelectorProblem::NoValues),
            (LabelOperator::Exists | LabelOperator::DoesNotExist, false) => return Err(SelectorProblem::Values),
            (LabelOperator::In, false) => Test::In(values),
            (LabelOperator::NotIn, false) => Test::NotIn(values),
            (LabelOperator::Exists, true) => Test::Exists,
            (LabelOperator::DoesNotExist, true) => Test::DoesNotExist,
        };
        Ok(Self { key: expression.key.clone(), test })
    }
}

fn check_key(key: &str) -> Result<(), SelectorProblem> {
    let (prefix, name) = key.rsplit_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let prefix_ok = prefix.is_none_or(|prefix| {
        prefix.len() <= 253 && prefix.split('.').all(|part| word(part, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), |c| c == '-'))
    });
    if prefix_ok && label_word(name) { Ok(()) } else { Err(SelectorProblem::Key) }
}

fn check_value(value: &str, of: Of) -> Result<(), SelectorProblem> {
    match of {
        Of::Labels if !value.is_empty() && !label_word(value) => Err(SelectorProblem::Value),
        Of::Labels | Of::Annotations => Ok(()),
    }
}

fn label_word(text: &str) -> bool {
    text.len() <= 63 && word(text, |c| c.is_ascii_alphanumeric(), |c| matches!(c, '-' | '_' | '.'))
}

/// Not empty, of `letter`s and `inner` characters, the latter not at the ends.
fn word(text: &str, letter: impl Fn(char) -> bool, inner: impl Fn(char) -> bool) -> bool {
    text.starts_with(&letter) && text.ends_with(&letter) && text.chars().all(|c| letter(c) || inner(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn requirement(key: &str, operator: LabelOperator, values: &[&str]) -> LabelSelector {
        LabelSelector {
            match_labels: BTreeMap::new(),
            match_expressions: vec![LabelRequirement {
                key: key.to_owned(),
                operator,
                values: values.iter().map(|value| (*value).to_owned()).collect(),
            }],
        }
    }

    #[test]
    fn operators_mean_what_kubernetes_means() {
        use LabelOperator::{DoesNotExist, Exists, In, NotIn};
        let prod = labels(&[("env", "prod")]);
        let none = labels(&[]);
        let table = [
            (requirement("env", In, &["prod", "stage"]), &prod, true),
            (requirement("env", In, &["stage"]), &prod, false),
            (requirement("env", In, &["prod"]), &none, false),
            (requirement("env", NotIn, &["prod"]), &prod, false),
            (requirement("env", NotIn, &["stage"]), &prod, true),
            (requirement("env", NotIn, &["prod"]), &none, true),
            (requirement("env", Exists, &[]), &prod, true),
            (requirement("env", Exists, &[]), &none, false),
            (requirement("env", DoesNotExist, &[]), &prod, false),
            (requirement("env", DoesNotExist, &[]), &none, true),
            (LabelSelector { match_labels: prod.clone(), ..LabelSelector::default() }, &prod, true),
            (LabelSelector { match_labels: prod.clone(), ..LabelSelector::default() }, &none, false),
            (LabelSelector::default(), &none, true),
        ];
        for (selector, labels, expected) in table {
            assert_eq!(Selector::compile(&selector, Of::Labels).unwrap().matches(labels), expected, "{selector:?} on {labels:?}");
        }
    }

    #[test]
    fn all_requirements_must_hold() {
        let mut selector = requirement("tier", LabelOperator::Exists, &[]);
        selector.match_labels = labels(&[("env", "prod")]);
        let selector = Selector::compile(&selector, Of::Labels).unwrap();
        assert!(selector.matches(&labels(&[("env", "prod"), ("tier", "")])));
        assert!(!selector.matches(&labels(&[("env", "prod")])));
    }

    #[test]
    fn nonsense_is_refused() {
        use LabelOperator::{DoesNotExist, Exists, In, NotIn};
        let long = "x".repeat(64);
        for selector in [
            requirement("env", In, &[]),
            requirement("env", NotIn, &[]),
            requirement("env", Exists, &["x"]),
            requirement("env", DoesNotExist, &["x"]),
            requirement("", Exists, &[]),
            requirement("-env", Exists, &[]),
            requirement("a b", Exists, &[]),
            requirement("Upper.example/env", Exists, &[]),
            requirement("/env", Exists, &[]),
            requirement("a/b/c", Exists, &[]),
            requirement(&long, Exists, &[]),
            requirement("env", In, &["-x"]),
            requirement("env", In, &["a b"]),
            requirement("env", In, &[&long]),
        ] {
            assert!(Selector::compile(&selector, Of::Labels).is_err(), "{selector:?}");
        }
        assert!(Selector::compile(&requirement("example.com/env_1.x", In, &["", "a_b.c-1"]), Of::Labels).is_ok());
        assert!(Selector::compile(&requirement("example.com/note", In, &["any text"]), Of::Annotations).is_ok());
    }
}
