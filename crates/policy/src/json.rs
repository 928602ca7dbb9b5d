//! JSON with the order of its names kept, and without names that stand twice: of two `Effect`s one reader would believe the first and
//! another the last.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A value. Its depth is bounded by `serde_json` (128).
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// As text, since policies compare it as text.
    Number(String),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Number(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        let mut object: Vec<(String, Json)> = Vec::new();
        let mut names = std::collections::HashSet::new();
        while let Some((name, value)) = entries.next_entry::<String, Json>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom("a name stands twice"));
            }
            object.push((name, value));
        }
        Ok(Json::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_once() {
        let read = |text: &str| serde_json::from_str::<Json>(text).ok();
        let text = |text: &str| Json::Text(text.to_owned());
        assert_eq!(
            read(r#"{"b":[1,-2,true,null],"a":"x"}"#).unwrap(),
            Json::Object(vec![
                (
                    "b".to_owned(),
                    Json::List(vec![
                        Json::Number("1".to_owned()),
                        Json::Number("-2".to_owned()),
                        Json::Bool(true),
                        Json::Null
                    ])
                ),
                ("a".to_owned(), text("x")),
            ])
        );
        assert_eq!(read(r#"{"a":1,"a":1}"#), None);
        assert_eq!(read(r#"{"x":{"a":1,"b":2,"a":3}}"#), None);
        assert_eq!(read(&"[".repeat(100_000)), None);
    }
}
