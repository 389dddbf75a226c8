"""Sites on other machines, over NVIDIA FLARE: the engine carries bytes and knows nothing else.

::

    eigenfed coordinate                                            eigenfed site
      NvflareHub ─ socket ─ RelayController ═ mTLS ═ RelayExecutor ─ socket ─ NvflareNode
                            (FLARE server)           (FLARE client)

Coordinator and site are processes of our own that live as long as they like. FLARE's server and
client are their children, and hold nothing that could be lost: a killed job, client or server
costs a new one, and a repeated request is answered with the stored reply.

Only `relay` and `launch`, which run inside FLARE's processes, import ``nvflare``, from the extra
``eigenfed[nvflare]``. All else works without it, so that kits can be made and checked anywhere.

- `kits`: the certificate authority, certificates, and the folders that FLARE starts from.
- `hardening`: the settings of a kit, and the check that a kit has no others.
- `handshake`: a TLS connection with the kit's certificates, which says what is wrong.
- `engine_home`: the folder that FLARE works in, and how it is started.
- `hub`, `node`: the coordinator's end and the site's end.
- `wire`: bytes with a header on a Unix socket.
- `warden`: a process that ends with its parent, and takes everything below it along.
- `relay`: the controller and the executor that FLARE loads.
- `launch`: the component of FLARE's server that starts the relay at sites as they come.
"""
