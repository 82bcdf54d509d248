//! A toolkit for Kubernetes controllers.
//!
//! ```text
//!   list + watch ──▶ reflector ──▶ store, indexes ──▶ work queue ──▶ reconcile: gather ▸ decide ▸ write
//!                                        ▲                                                      │
//!                                        └──────── own writes are awaited in the store ◀────────┘
//! ```
//!
//! A controller reaches the cluster only through a [`kube::Client`], so the same code runs in a process with an
//! embedded API server and against any Kubernetes.
//!
//! | module | purpose | in client-go or controller-runtime |
//! |---|---|---|
//! | [`reflector`] | the list-and-watch loop: pages, resumes, retries | `cache.Reflector` |
//! | [`store`] | objects in memory, by name, namespace, controller, and any other index | `cache.Indexer` |
//! | [`informer`] | a store that a reflector updates; one per kind in a process | `SharedInformerFactory` |
//! | [`work_queue`] | which objects are to be reconciled: once each, in order, with backoff | `workqueue` |
//! | [`controller`] | the loop: workers, retries, a panic over one object is that object's | `controller.Controller` |
//! | [`own_writes`] | not deciding from a store that does not hold the own writes yet | `ControllerExpectations` |
//! | [`events`] | events: counted, combined, filtered, never waited for | `record.EventRecorder` |
//! | [`leader`] | leader election on a lease | `leaderelection` |
//! | [`adoption`], [`finalizer`] | owner references and finalizers | `PodControllerRefManager`, `controllerutil` |
//! | [`pods`], [`revision`] | functions on pods; the history of a workload | `controller_utils`, `history` |
//! | [`rest_mapping`] | which resource serves a kind, and whether it has the scale subresource | `meta.RESTMapper` |
//! | [`label_selector`] | label selectors as text | `labels.Parse` |
//! | [`int_or_percent`] | numbers that may be a percentage | `intstr` |
//! | [`crds`] | installing `CustomResourceDefinition`s besides existing ones | |
//! | [`Backoff`], [`Clock`] | waits between attempts; time, injected | `wait.Backoff`, `clock.Clock` |
//! | [`metrics`] | under client-go's and controller-runtime's names | `workqueue_*`, `controller_runtime_*` |

pub mod adoption;
pub mod api_error;
pub mod clock;
pub mod controller;
pub mod crds;
pub mod events;
pub mod finalizer;
pub mod informer;
pub mod int_or_percent;
pub mod label_selector;
pub mod leader;
pub mod metrics;
pub mod object_ref;
pub mod own_writes;
mod panics;
pub mod pods;
pub mod reflector;
pub mod rest_mapping;
pub mod revision;
pub mod store;
pub mod work_queue;

pub use clock::Clock;
pub use controller::{Controller, Reconciler, Requeue};
pub use informer::{Informer, InformerFactory};
pub use object_ref::{ObjectRef, controller_of, controller_of_kind, controller_reference};
pub use own_writes::Write;
pub use plumb_supervise::{Backoff, Exponential, Random, system_random};
pub use reflector::{Reflector, WatchConfig, WatchEvent, Watchable, compact};
pub use rest_mapping::{RestMapper, RestMapperConfig, RestMapping};
pub use store::{Change, Index, Store};
pub use work_queue::{WorkQueue, WorkResult};
