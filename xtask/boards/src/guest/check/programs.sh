# Programs of rdma-core and perftest that move data.
ibv_devinfo || failed "ibv_devinfo failed"
ibv_devinfo | grep -q "fw_ver:.*[.]99[.]0000" || failed "the driver read another version of the firmware"
pair ibv_rc_pingpong -n 200 ${gid:+-g $gid} -- 127.0.0.1
pair ibv_rc_pingpong -e -n 50 ${gid:+-g $gid} -- 127.0.0.1
pair ibv_uc_pingpong -n 200 ${gid:+-g $gid} -- 127.0.0.1
pair ibv_ud_pingpong -n 200 ${gid:+-g $gid} -- 127.0.0.1
pair ibv_srq_pingpong -n 200 -q 4 ${gid:+-g $gid} -- 127.0.0.1
pair ib_write_bw -n 200 ${gid:+-x $gid} -- 127.0.0.1
pair ib_read_lat -n 200 ${gid:+-x $gid} -- 127.0.0.1
