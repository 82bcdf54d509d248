//! What of a recommendation a pod gets: capped by the policy and by limit ranges, with limits in proportion. Pure.
