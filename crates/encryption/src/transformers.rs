//! Which providers a resource has, and what they make of its values.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::cipher::{NoRandomBytes, RandomBytes};
use crate::error::{ConfigurationError, Origin, TransformError};
use crate::non_empty::NonEmpty;
use crate::provider::{Decrypted, Provider};
use crate::resource::GroupResource;

/// The providers of each resource.
///
/// As upstream, a rule for a resource has precedence over one for its group (`*.apps`), and that over one for everything
/// (`*.*`). A resource without a rule is not encrypted.
pub struct Transformers {
    /// By group and resource, so that a lookup needs no allocation.
    groups: HashMap<String, HashMap<String, ResourceTransformer>>,
    others: ResourceTransformer,
}

/// The providers of a resource: the first one encrypts, each of them decrypts.
#[derive(Clone)]
pub struct ResourceTransformer {
    providers: NonEmpty<Arc<Provider>>,
    random: Arc<dyn RandomBytes>,
    is_configured: bool,
}

/// A value from stored bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transformed<'s> {
    /// The value.
    pub value: Cow<'s, [u8]>,
    /// Whether it would be stored otherwise now: by another provider, or with another key.
    pub is_stale: bool,
    /// The prefix of the provider that decrypted it, as metrics name it.
    pub prefix: &'static str,
}

/// The providers of the resources, in the order of the configuration.
pub(crate) struct Rules(Vec<(GroupResource, NonEmpty<Arc<Provider>>)>);

impl Rules {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds the providers of a resource. Several rules for the same resource add up, as upstream; a wildcard must come after
    /// the resources that it covers.
    pub(crate) fn add(
        &mut self,
        resource: GroupResource,
        providers: NonEmpty<Arc<Provider>>,
    ) -> Result<(), ConfigurationError> {
        let mut masking = [GroupResource::any_in(&resource.group), GroupResource::any_in("*")].into_iter();
        if let Some(rule) = masking.find(|rule| self.0.iter().any(|(known, _)| known == rule)) {
            return Err(ConfigurationError::Masked { resource, rule });
        }
        match self.0.iter_mut().find(|(known, _)| *known == resource) {
            Some((_, known)) => known.append(providers),
            None => self.0.push((resource, providers)),
        }
        Ok(())
    }

    pub(crate) fn transformers(&self, random: impl RandomBytes + 'static) -> Transformers {
        let random: Arc<dyn RandomBytes> = Arc::new(random);
        let transformer = |providers: NonEmpty<Arc<Provider>>, is_configured| ResourceTransformer {
            providers,
            random: random.clone(),
            is_configured,
        };
        let mut groups: HashMap<String, HashMap<String, ResourceTransformer>> = HashMap::new();
        for (GroupResource { group, resource }, providers) in &self.0 {
            let resources = groups.entry(group.clone()).or_default();
            resources.insert(resource.clone(), transformer(providers.clone(), true));
        }
        Transformers { groups, others: transformer(NonEmpty::of_one(Arc::new(Provider::Identity)), false) }
    }
}

impl Transformers {
    /// Encrypts no resource, and reads no encrypted value.
    pub fn identity() -> Self {
        // Nothing is encrypted.
        Rules::new().transformers(|_: &mut [u8]| Err(NoRandomBytes))
    }

    /// The transformer of a resource; the core group is empty.
    pub fn for_resource(&self, group: &str, resource: &str) -> &ResourceTransformer {
        if self.groups.is_empty() {
            return &self.others;
        }
        let rule = |group: &str, resource: &str| self.groups.get(group)?.get(resource);
        rule(group, resource).or_else(|| rule(group, "*")).or_else(|| rule("*", "*")).unwrap_or(&self.others)
    }
}

impl ResourceTransformer {
    /// Whether the configuration has a rule for the resource.
    pub fn is_configured(&self) -> bool {
        self.is_configured
    }

    /// The prefix of the provider that writes, as metrics name it.
    pub fn prefix(&self) -> &'static str {
        self.providers.first().prefix()
    }

    /// The bytes that are stored for a value. `authenticated` identifies the object; the same bytes are needed to decrypt.
    pub fn transform_to_storage<'v>(
        &self,
        value: &'v [u8],
        authenticated: &[u8],
    ) -> Result<Cow<'v, [u8]>, TransformError> {
        self.providers.first().encrypt(value, authenticated, self.random.as_ref())
    }

    /// The value of stored bytes.
    ///
    /// All providers with a matching prefix are tried, since several may have different keys of the same name.
    pub fn transform_from_storage<'s>(
        &self,
        stored: &'s [u8],
        authenticated: &[u8],
    ) -> Result<Transformed<'s>, TransformError> {
        let mut rejections = Vec::new();
        for (position, provider) in self.providers.iter().enumerate() {
            match provider.decrypt(stored, authenticated) {
                Ok(None) => {}
                Ok(Some(Decrypted { value, key })) => {
                    let is_stale = position > 0 || key > 0;
                    return Ok(Transformed { value, is_stale, prefix: provider.prefix() });
                }
                Err(several) => rejections.extend(several),
            }
        }
        if !rejections.is_empty() {
            return Err(TransformError::Rejected(rejections));
        }
        let origin = Origin::of_value(stored);
        Err(if self.is_configured {
            TransformError::NoMatchingPrefix(origin)
        } else {
            TransformError::Identity(origin)
        })
    }
}

impl fmt::Debug for Transformers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.groups.iter().flat_map(|(group, resources)| {
            resources.keys().map(move |resource| {
                GroupResource { group: group.clone(), resource: resource.clone() }.to_string()
            })
        });
        f.debug_tuple("Transformers").field(&rules.collect::<Vec<_>>()).finish()
    }
}

impl fmt::Debug for ResourceTransformer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefixes: Vec<_> = self.providers.iter().map(|provider| provider.prefix()).collect();
        f.debug_tuple("ResourceTransformer").field(&prefixes).finish()
    }
}
