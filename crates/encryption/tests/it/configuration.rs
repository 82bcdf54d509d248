//! The configuration file, and upstream's messages about it.

use plumb_encryption::EncryptionConfiguration;

use crate::support::{IDENTITY, document, parse, provider, secret};

fn error(text: &str) -> String {
    EncryptionConfiguration::parse(text).unwrap_err().to_string()
}

/// The error for one entry, `resources` and `providers` of which are YAML.
fn entry_error(resources: &str, providers: &str) -> String {
    error(&document(&format!("[{{resources: {resources}, providers: {providers}}}]")))
}

#[test]
fn a_configuration_is_yaml_or_json_also_of_the_former_kind() {
    let resources = "[{\"resources\": [\"secrets\"], \"providers\": [{\"identity\": {}}]}]";
    let json = format!(
        "{{\"apiVersion\": \"apiserver.config.k8s.io/v1\", \"kind\": \"EncryptionConfiguration\", \
         \"resources\": {resources}}}"
    );
    let former = format!("apiVersion: v1\nkind: EncryptionConfig\nresources: {resources}\n");
    for text in [document(resources), json, former] {
        EncryptionConfiguration::parse(&text).unwrap();
    }
}

#[test]
fn another_kind_is_refused() {
    let expected =
        "no EncryptionConfiguration of apiserver.config.k8s.io/v1: see its fields apiVersion and kind";
    for text in
        ["", "text", "apiVersion: v1\nkind: EncryptionConfiguration\n", "kind: EncryptionConfiguration\n"]
    {
        assert_eq!(error(text), expected, "{text:?}");
    }
}

#[test]
fn an_error_of_the_form_names_the_field_and_no_value() {
    let cases = [
        (
            "[{resources: [secrets], provider: []}]",
            "unknown field `provider`, expected `resources` or `providers`",
        ),
        (
            "[{resources: [secrets], providers: [{aesgcm: hunter2}]}]",
            "a field has a value of the wrong type, expected struct Keys",
        ),
        (
            "[{resources: [secrets], providers: [{aesgcm: {keys: [{name: a, secret: [hunter2]}]}}]}]",
            "a field has a value of the wrong type, expected a string",
        ),
    ];
    for (resources, message) in cases {
        assert_eq!(error(&document(resources)), message);
    }
    let text = document("[{secret: hunter2");
    assert!(error(&text).starts_with("not valid YAML"), "{}", error(&text));
    assert!(!error(&text).contains("hunter2"));
}

#[test]
fn each_list_has_an_item() {
    for none in ["[]", "null"] {
        assert_eq!(error(&document(none)), "resources: Required value: at least one resources is required");
    }
    assert_eq!(
        entry_error("[]", "[]"),
        "[resources[0].resources: Required value: at least one resources[0].resources is required, \
         resources[0].providers: Required value: at least one resources[0].providers is required]"
    );
    assert_eq!(
        entry_error("[secrets]", "[{aescbc: {}}]"),
        "resources[0].providers[0].aescbc.keys: Required value: at least one keys is required"
    );
}

#[test]
fn a_name_of_a_resource_follows_the_rules_of_upstream() {
    let cases = [
        ("Secrets", "resource name should not contain capital letters"),
        ("*", "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"),
        ("serviceipallocations", "resources which do not have REST API/s cannot be encrypted"),
        (
            "events.events.k8s.io",
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config \
             file",
        ),
        ("*.extensions", "'extensions' group has been removed and cannot be used for encryption"),
        ("secrets.*", "encrypting the same resource across groups is not supported"),
    ];
    for (name, rule) in cases {
        let expected = format!("resources[0].resources[0]: Invalid value: {name:?}: {rule}");
        assert_eq!(entry_error(&format!("[{name:?}]"), "[{identity: {}}]"), expected);
    }
}

#[test]
fn resources_of_one_list_do_not_overlap() {
    const DUPLICATE: &str = "the same resource cannot be specified multiple times";
    const OVERLAP: &str = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be \
         masked";
    let cases: [(&[&str], &[&str]); 6] = [
        (&["secrets", "secrets"], &[DUPLICATE]),
        (&["secrets", "*."], &[OVERLAP]),
        (&["*.*", "deployments.apps"], &[OVERLAP]),
        (&["*.apps", "deployments.apps", "*.apps"], &[DUPLICATE, OVERLAP]),
        (&["secrets", "*.apps"], &[]),
        (&["secrets", "configmaps", "secrets.example.com"], &[]),
    ];
    for (resources, rules) in cases {
        let list = format!("{resources:?}").replace("\", \"", "\",\"");
        let errors: Vec<String> = rules
            .iter()
            .map(|rule| format!("resources[0].resources: Invalid value: {list}: {rule}"))
            .collect();
        let expected = match errors.as_slice() {
            [] => {
                parse(&[(resources, &[IDENTITY.to_owned()])]).unwrap();
                continue;
            }
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        assert_eq!(entry_error(&list, "[{identity: {}}]"), expected);
    }
}

#[test]
fn a_rule_behind_a_wildcard_that_covers_it_is_refused() {
    let cases: [(&[&str], &str); 5] = [
        (&["*.", "secrets"], "resource \"secrets\" is masked by earlier rule \"*.\""),
        (&["*.", "*."], "resource \"*.\" is masked by earlier rule \"*.\""),
        (
            &["*.apps", "deployments.apps"],
            "resource \"deployments.apps\" is masked by earlier rule \"*.apps\"",
        ),
        (&["*.*", "secrets"], "resource \"secrets\" is masked by earlier rule \"*.*\""),
        (&["*.*", "*.apps"], "resource \"*.apps\" is masked by earlier rule \"*.*\""),
    ];
    let identity = [IDENTITY.to_owned()];
    for (resources, message) in cases {
        let entries: Vec<(&[&str], &[String])> =
            resources.chunks(1).map(|resource| (resource, &identity[..])).collect();
        assert_eq!(parse(&entries).unwrap_err().to_string(), message);
        let reversed: Vec<_> = entries.into_iter().rev().collect();
        assert_eq!(parse(&reversed).is_ok(), resources[0] != resources[1], "{resources:?}");
    }
}

#[test]
fn an_item_of_the_providers_is_one_provider() {
    assert_eq!(
        entry_error("[secrets]", "[{}, {identity: null}]"),
        "[resources[0].providers[0]: Invalid value: provider does not contain any of the expected providers: KMS, AESGCM, \
         AESCBC, Secretbox, Identity, resources[0].providers[1]: Invalid value: provider does not contain any of the \
         expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity]"
    );
    let aesgcm = provider("aesgcm", &[("key1", secret(16))]);
    for other in ["identity: {}", "kms: {}", &provider("aescbc", &[("key1", secret(16))])] {
        assert_eq!(
            entry_error("[secrets]", &format!("[{{{aesgcm}, {other}}}]")),
            "resources[0].providers[0]: Invalid value: more than one provider specified in a single element, should split \
             into different list elements"
        );
    }
}

#[test]
fn a_key_has_a_name_and_a_secret_of_a_length_of_its_provider() {
    let key = |provider: &str, key: &str| {
        entry_error("[secrets]", &format!("[{{identity: {{}}}}, {{{provider}: {{keys: [{key}]}}}}]"))
    };
    let path = |provider: &str| format!("resources[0].providers[1].{provider}.keys[0]");
    assert_eq!(
        key("aesgcm", "{}"),
        format!(
            "[{0}.name: Required value: name is a mandatory field for a key, {0}.secret: Required value: secret is a \
             mandatory field for a key]",
            path("aesgcm")
        )
    );
    assert_eq!(
        key("aescbc", "{name: a, secret: hunter2}"),
        format!("{}.secret: Invalid value: \"REDACTED\": secrets must be base64 encoded", path("aescbc"))
    );
    for (provider, lengths, secret) in
        [("aesgcm", "16 24 32", "YQ=="), ("aescbc", "16 24 32", "YQ=="), ("secretbox", "32", "YQ==")]
    {
        assert_eq!(
            key(provider, &format!("{{name: a, secret: {secret:?}}}")),
            format!(
                "{}.secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 1, expected one of \
                 [{lengths}]",
                path(provider)
            )
        );
    }
    assert_eq!(
        key("aesgcm", &format!("{{name: {}, secret: {:?}}}", "a".repeat(1025), secret(16))),
        format!("{}.name: Too long: may not be more than 1024 bytes", path("aesgcm"))
    );
}

#[test]
fn a_secret_may_have_line_ends() {
    let providers =
        "[{secretbox: {keys: [{name: a, secret: \"QEFCQ0RFRkdISUpLTE1OT1BR\\nUlNUVVZXWFlaW1xdXl8=\\n\"}]}}]";
    EncryptionConfiguration::parse(&document(&format!("[{{resources: [secrets], providers: {providers}}}]")))
        .unwrap();
}

#[test]
fn a_kms_provider_is_refused_as_not_supported() {
    assert_eq!(
        entry_error("[secrets]", "[{kms: {apiVersion: v2, name: vault, endpoint: 'unix:///run/kms.sock'}}]"),
        "resources[0].providers[0].kms: Forbidden: KMS providers are not supported"
    );
}
