//! `/openapi/v2` in protobuf, as client-go and kubectl read it: decoded by another implementation of protobuf, it is
//! the document that is served as JSON.

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use plumb_resize::rules::Rules;
use prost::Message as _;
use serde_json::{Map, Value, json};

use super::custom::{DEFINITIONS, definition, version};
use super::test_api_server::{TestApiServer, admin};

const REQUESTED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const SERVED: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The messages of gnostic's package `openapi.v2`, as far as documents of Kubernetes have them.
mod gnostic {
    macro_rules! message {
        ($name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty),* $(,)? }) => {
            #[derive(Clone, PartialEq, prost::Message)]
            pub(super) struct $name { $($(#[$attribute])* pub(super) $field: $type),* }
        };
    }

    message!(Any {
        #[prost(string, tag = "2")]
        yaml: String,
    });
    message!(NamedAny {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(message, required, tag = "2")]
        value: Any,
    });
    message!(Document {
        #[prost(string, tag = "1")]
        swagger: String,
        #[prost(message, required, tag = "2")]
        info: Info,
        #[prost(message, required, tag = "8")]
        paths: Paths,
        #[prost(message, required, tag = "9")]
        definitions: Schemas,
    });
    message!(Info {
        #[prost(string, tag = "1")]
        title: String,
        #[prost(string, tag = "2")]
        version: String,
    });
    message!(Paths {
        #[prost(message, repeated, tag = "2")]
        path: Vec<NamedPathItem>,
    });
    message!(NamedPathItem {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(message, required, tag = "2")]
        value: PathItem,
    });
    message!(PathItem {
        #[prost(message, optional, tag = "2")]
        get: Option<Operation>,
        #[prost(message, optional, tag = "3")]
        put: Option<Operation>,
        #[prost(message, optional, tag = "4")]
        post: Option<Operation>,
        #[prost(message, optional, tag = "5")]
        delete: Option<Operation>,
        #[prost(message, optional, tag = "6")]
        options: Option<Operation>,
        #[prost(message, optional, tag = "7")]
        head: Option<Operation>,
        #[prost(message, optional, tag = "8")]
        patch: Option<Operation>,
        #[prost(message, repeated, tag = "9")]
        parameters: Vec<ParametersItem>,
        #[prost(message, repeated, tag = "10")]
        extensions: Vec<NamedAny>,
    });
    message!(Operation {
        #[prost(string, repeated, tag = "1")]
        tags: Vec<String>,
        #[prost(string, tag = "3")]
        description: String,
        #[prost(string, tag = "5")]
        id: String,
        #[prost(string, repeated, tag = "6")]
        produces: Vec<String>,
        #[prost(string, repeated, tag = "7")]
        consumes: Vec<String>,
        #[prost(message, repeated, tag = "8")]
        parameters: Vec<ParametersItem>,
        #[prost(message, required, tag = "9")]
        responses: Responses,
        #[prost(string, repeated, tag = "10")]
        schemes: Vec<String>,
        #[prost(bool, tag = "11")]
        deprecated: bool,
        #[prost(message, repeated, tag = "13")]
        extensions: Vec<NamedAny>,
    });
    message!(ParametersItem {
        #[prost(message, required, tag = "1")]
        parameter: Parameter,
    });
    message!(Parameter {
        #[prost(message, optional, tag = "1")]
        body: Option<BodyParameter>,
        #[prost(message, optional, tag = "2")]
        other: Option<NonBodyParameter>,
    });
    message!(BodyParameter {
        #[prost(string, tag = "1")]
        description: String,
        #[prost(string, tag = "2")]
        name: String,
        #[prost(string, tag = "3")]
        place: String,
        #[prost(bool, tag = "4")]
        required: bool,
        #[prost(message, required, tag = "5")]
        schema: Schema,
        #[prost(message, repeated, tag = "6")]
        extensions: Vec<NamedAny>,
    });
    message!(NonBodyParameter {
        #[prost(message, optional, tag = "3")]
        query: Option<QueryParameter>,
        #[prost(message, optional, tag = "4")]
        path: Option<PathParameter>,
    });
    message!(QueryParameter {
        #[prost(bool, tag = "1")]
        required: bool,
        #[prost(string, tag = "2")]
        place: String,
        #[prost(string, tag = "3")]
        description: String,
        #[prost(string, tag = "4")]
        name: String,
        #[prost(string, tag = "6")]
        of: String,
        #[prost(bool, tag = "20")]
        unique_items: bool,
        #[prost(message, repeated, tag = "23")]
        extensions: Vec<NamedAny>,
    });
    message!(PathParameter {
        #[prost(bool, tag = "1")]
        required: bool,
        #[prost(string, tag = "2")]
        place: String,
        #[prost(string, tag = "3")]
        description: String,
        #[prost(string, tag = "4")]
        name: String,
        #[prost(string, tag = "5")]
        of: String,
        #[prost(bool, tag = "19")]
        unique_items: bool,
        #[prost(message, repeated, tag = "22")]
        extensions: Vec<NamedAny>,
    });
    message!(Responses {
        #[prost(message, repeated, tag = "1")]
        codes: Vec<NamedResponseValue>,
    });
    message!(NamedResponseValue {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(message, required, tag = "2")]
        value: ResponseValue,
    });
    message!(ResponseValue {
        #[prost(message, required, tag = "1")]
        response: Response,
    });
    message!(Response {
        #[prost(string, tag = "1")]
        description: String,
        #[prost(message, optional, tag = "2")]
        schema: Option<SchemaItem>,
    });
    message!(SchemaItem {
        #[prost(message, required, tag = "1")]
        schema: Schema,
    });
    message!(Schemas {
        #[prost(message, repeated, tag = "1")]
        named: Vec<NamedSchema>,
    });
    message!(NamedSchema {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(message, required, tag = "2")]
        value: Schema,
    });
    message!(Texts {
        #[prost(string, repeated, tag = "1")]
        value: Vec<String>,
    });
    message!(Items {
        #[prost(message, repeated, tag = "1")]
        schema: Vec<Schema>,
    });
    message!(AdditionalProperties {
        #[prost(message, optional, boxed, tag = "1")]
        schema: Option<Box<Schema>>,
        #[prost(bool, optional, tag = "2")]
        boolean: Option<bool>,
    });
    message!(Schema {
        #[prost(string, tag = "1")]
        reference: String,
        #[prost(string, tag = "2")]
        format: String,
        #[prost(string, tag = "3")]
        title: String,
        #[prost(string, tag = "4")]
        description: String,
        #[prost(message, optional, tag = "5")]
        default: Option<Any>,
        #[prost(double, tag = "6")]
        multiple_of: f64,
        #[prost(double, tag = "7")]
        maximum: f64,
        #[prost(bool, tag = "8")]
        exclusive_maximum: bool,
        #[prost(double, tag = "9")]
        minimum: f64,
        #[prost(bool, tag = "10")]
        exclusive_minimum: bool,
        #[prost(int64, tag = "11")]
        max_length: i64,
        #[prost(int64, tag = "12")]
        min_length: i64,
        #[prost(string, tag = "13")]
        pattern: String,
        #[prost(int64, tag = "14")]
        max_items: i64,
        #[prost(int64, tag = "15")]
        min_items: i64,
        #[prost(bool, tag = "16")]
        unique_items: bool,
        #[prost(int64, tag = "17")]
        max_properties: i64,
        #[prost(int64, tag = "18")]
        min_properties: i64,
        #[prost(string, repeated, tag = "19")]
        required: Vec<String>,
        #[prost(message, repeated, tag = "20")]
        choices: Vec<Any>,
        #[prost(message, optional, tag = "21")]
        additional_properties: Option<AdditionalProperties>,
        #[prost(message, optional, tag = "22")]
        of: Option<Texts>,
        #[prost(message, optional, tag = "23")]
        items: Option<Items>,
        #[prost(message, repeated, tag = "24")]
        all_of: Vec<Schema>,
        #[prost(message, optional, tag = "25")]
        properties: Option<Schemas>,
        #[prost(message, optional, tag = "30")]
        example: Option<Any>,
        #[prost(message, repeated, tag = "31")]
        extensions: Vec<NamedAny>,
    });
}

/// A value, unless it is the one that protobuf takes for a missing one.
fn given(fields: &mut Map<String, Value>, name: &str, value: Value) {
    if !is_zero(&value) {
        fields.insert(name.to_owned(), value);
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(_) => false,
    }
}

fn any(value: &gnostic::Any) -> Value {
    serde_json::from_str(&value.yaml).unwrap()
}

fn extensions(fields: &mut Map<String, Value>, list: &[gnostic::NamedAny]) {
    fields.extend(list.iter().map(|own| (own.name.clone(), any(&own.value))));
}

fn number(value: f64) -> Value {
    // Documents have whole numbers, where they are.
    if value.fract() == 0.0 { json!(format!("{value}").parse::<i64>().unwrap()) } else { json!(value) }
}

fn schemas(list: &gnostic::Schemas) -> Value {
    list.named.iter().map(|own| (own.name.clone(), schema(&own.value))).collect::<Map<_, _>>().into()
}

fn schema(own: &gnostic::Schema) -> Value {
    let mut fields = Map::new();
    for (name, value) in [
        ("$ref", json!(own.reference)),
        ("format", json!(own.format)),
        ("title", json!(own.title)),
        ("description", json!(own.description)),
        ("multipleOf", number(own.multiple_of)),
        ("maximum", number(own.maximum)),
        ("exclusiveMaximum", json!(own.exclusive_maximum)),
        ("minimum", number(own.minimum)),
        ("exclusiveMinimum", json!(own.exclusive_minimum)),
        ("maxLength", json!(own.max_length)),
        ("minLength", json!(own.min_length)),
        ("pattern", json!(own.pattern)),
        ("maxItems", json!(own.max_items)),
        ("minItems", json!(own.min_items)),
        ("uniqueItems", json!(own.unique_items)),
        ("maxProperties", json!(own.max_properties)),
        ("minProperties", json!(own.min_properties)),
        ("required", json!(own.required)),
        ("enum", own.choices.iter().map(any).collect()),
        ("allOf", own.all_of.iter().map(schema).collect()),
        ("properties", own.properties.as_ref().map(schemas).into()),
    ] {
        given(&mut fields, name, value);
    }
    for (name, value) in [("default", &own.default), ("example", &own.example)] {
        fields.extend(value.as_ref().map(|value| (name.to_owned(), any(value))));
    }
    if let Some(of) = &own.of {
        assert_eq!(of.value.len(), 1);
        fields.insert("type".to_owned(), json!(of.value[0]));
    }
    if let Some(items) = &own.items {
        assert_eq!(items.schema.len(), 1);
        fields.insert("items".to_owned(), schema(&items.schema[0]));
    }
    if let Some(more) = &own.additional_properties {
        let value = more.schema.as_ref().map_or_else(|| json!(more.boolean), |own| schema(own));
        fields.insert("additionalProperties".to_owned(), value);
    }
    extensions(&mut fields, &own.extensions);
    fields.into()
}

fn parameter(item: &gnostic::ParametersItem) -> Value {
    let mut fields = Map::new();
    let mut common = |name: &str, place: &str, description: &str, required: bool| {
        for (field, value) in [
            ("name", json!(name)),
            ("in", json!(place)),
            ("description", json!(description)),
            ("required", json!(required)),
        ] {
            given(&mut fields, field, value);
        }
    };
    let other = item.parameter.other.clone().unwrap_or_default();
    if let Some(own) = &item.parameter.body {
        common(&own.name, &own.place, &own.description, own.required);
        fields.insert("schema".to_owned(), schema(&own.schema));
        extensions(&mut fields, &own.extensions);
    } else if let Some(own) = &other.query {
        common(&own.name, &own.place, &own.description, own.required);
        given(&mut fields, "type", json!(own.of));
        given(&mut fields, "uniqueItems", json!(own.unique_items));
        extensions(&mut fields, &own.extensions);
    } else if let Some(own) = &other.path {
        common(&own.name, &own.place, &own.description, own.required);
        given(&mut fields, "type", json!(own.of));
        given(&mut fields, "uniqueItems", json!(own.unique_items));
        extensions(&mut fields, &own.extensions);
    }
    fields.into()
}

fn operation(own: &gnostic::Operation) -> Value {
    let mut fields = Map::new();
    let responses = own.responses.codes.iter().map(|code| {
        let mut response = Map::new();
        given(&mut response, "description", json!(code.value.response.description));
        given(
            &mut response,
            "schema",
            code.value.response.schema.as_ref().map(|own| schema(&own.schema)).into(),
        );
        (code.name.clone(), Value::from(response))
    });
    for (name, value) in [
        ("tags", json!(own.tags)),
        ("description", json!(own.description)),
        ("operationId", json!(own.id)),
        ("produces", json!(own.produces)),
        ("consumes", json!(own.consumes)),
        ("parameters", own.parameters.iter().map(parameter).collect()),
        ("responses", responses.collect::<Map<_, _>>().into()),
        ("schemes", json!(own.schemes)),
        ("deprecated", json!(own.deprecated)),
    ] {
        given(&mut fields, name, value);
    }
    extensions(&mut fields, &own.extensions);
    fields.into()
}

fn path_item(own: &gnostic::PathItem) -> Value {
    let mut fields = Map::new();
    for (name, method) in [
        ("get", &own.get),
        ("put", &own.put),
        ("post", &own.post),
        ("delete", &own.delete),
        ("options", &own.options),
        ("head", &own.head),
        ("patch", &own.patch),
    ] {
        fields.extend(method.as_ref().map(|own| (name.to_owned(), operation(own))));
    }
    given(&mut fields, "parameters", own.parameters.iter().map(parameter).collect());
    extensions(&mut fields, &own.extensions);
    fields.into()
}

/// A part of a document without what protobuf takes for missing, but for values of any type.
fn carried(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let of_any =
                |name: &str| name.starts_with("x-") || matches!(name, "default" | "example" | "enum");
            let kept =
                |name: &str, value: &Value| of_any(name) || name == "additionalProperties" || !is_zero(value);
            let fields = fields.iter().filter(|(name, value)| kept(name, value)).map(|(name, value)| {
                let value = match name.as_str() {
                    name if of_any(name) => value.clone(),
                    // The names in it are those of properties.
                    "properties" => carried_map(value),
                    _ => carried(value),
                };
                (name.clone(), value)
            });
            fields.collect::<Map<_, _>>().into()
        }
        Value::Array(list) => list.iter().map(carried).collect(),
        other => other.clone(),
    }
}

fn carried_map(map: &Value) -> Value {
    let map = map.as_object().into_iter().flatten();
    map.map(|(name, value)| (name.clone(), carried(value))).collect::<Map<_, _>>().into()
}

async fn ask(apiserver: &TestApiServer, accept: &str) -> (StatusCode, String, Bytes) {
    let request = Request::get("/openapi/v2").header("accept", accept).extension(admin());
    let response = apiserver.server.handle(request.body(Full::<Bytes>::default()).unwrap()).await;
    let (head, body) = response.into_parts();
    let media = head.headers["content-type"].to_str().unwrap().to_owned();
    (head.status, media, body.collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn the_document_in_protobuf_is_the_one_in_json() {
    let apiserver = TestApiServer::open(Rules::kep());
    let spec = json!({ "type": "object", "description": "of a thing", "properties": {
        "size": { "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] },
        "count": { "type": "integer", "minimum": 1, "maximum": 9, "exclusiveMaximum": true, "multipleOf": 0.5 },
        "name": { "type": "string", "pattern": "^a+$", "minLength": 1, "maxLength": 7, "default": "aa" },
        "mode": { "type": "string", "enum": ["On", "Off"] },
        "map": { "type": "object", "additionalProperties": { "type": "string" }, "maxProperties": 3 },
        "list": { "type": "array", "maxItems": 5, "items": { "type": "object", "required": ["a"], "properties": {
            "a": { "type": "integer" },
        } } },
    } });
    apiserver.post(DEFINITIONS, &definition("things", "Thing", json!([version("v1", spec)]))).await.ok();
    let whole = apiserver.get("/openapi/v2").await.ok();
    let (status, media, bytes) = ask(&apiserver, REQUESTED).await;
    assert_eq!((status.as_u16(), media.as_str()), (200, SERVED));
    let document = gnostic::Document::decode(bytes).unwrap();
    assert_eq!((document.swagger.as_str(), document.info.title.as_str()), ("2.0", "Kubernetes"));
    assert_eq!(whole["info"]["version"], document.info.version);
    let expected = whole["definitions"].as_object().unwrap();
    assert_eq!(document.definitions.named.len(), expected.len());
    for own in &document.definitions.named {
        assert_eq!(schema(&own.value), carried(&expected[&own.name]), "{}", own.name);
    }
    assert!(expected.contains_key("com.example.v1.Thing"));
    let expected = whole["paths"].as_object().unwrap();
    assert_eq!(document.paths.path.len(), expected.len());
    for own in &document.paths.path {
        assert_eq!(path_item(&own.value), carried(&expected[&own.name]), "{}", own.name);
    }
}

#[tokio::test]
async fn the_format_of_the_document_is_the_first_that_a_client_accepts() {
    let apiserver = TestApiServer::open(Rules::kep());
    for (accept, status, expected) in [
        ("*/*", 200, "application/json"),
        ("application/json", 200, "application/json"),
        (SERVED, 200, SERVED),
        ("text/html, application/com.github.proto-openapi.spec.v2@v1.0+protobuf", 200, SERVED),
        ("application/json;q=0.9, application/*", 200, "application/json"),
        ("text/html", 406, "application/json"),
    ] {
        let (code, media, _) = ask(&apiserver, accept).await;
        assert_eq!((code.as_u16(), media.as_str()), (status, expected), "{accept}");
    }
}
