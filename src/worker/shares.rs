//! What this worker shares with the supervisor.

use std::{fs::File, io, sync::Arc};

use crate::{
    account::{Account, Ledger, Quota, Shared},
    ipc::Serving,
};

/// See the module's page.
#[derive(Debug)]
pub struct Shares {
    /// Leases and counters.
    pub account: Shared<Account>,
    /// What the VM's processes hold of device memory.
    pub ledger: Arc<Shared<Ledger>>,
    /// The client's account in it.
    pub quota: Quota,
    /// The client's place in the ledger.
    pub slot: usize,
    /// By which the supervisor looks at the account.
    pub doorbell: File,
    /// The GPUs that the client may use, as the driver numbers them, in the order in which the guest sees them; empty for
    /// all, in the driver's own order.
    pub gpus: Vec<u32>,
}

impl Shares {
    /// Maps what the supervisor has sent.
    ///
    /// # Errors
    /// It is not what it should be, or the host is out of memory.
    pub fn new(serving: Serving) -> io::Result<Self> {
        let ledger = Arc::new(Shared::map(Arc::new(serving.ledger.into()))?);
        let slot = serving.slot as usize;
        Ok(Self {
            account: Shared::map(Arc::new(serving.account.into()))?,
            quota: Quota::new(Arc::clone(&ledger), slot),
            ledger,
            slot,
            doorbell: serving.doorbell.into(),
            gpus: serving.gpus,
        })
    }
}
