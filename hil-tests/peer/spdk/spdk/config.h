/* SPDK's `configure` writes this file. What it could switch on is not used here. */
