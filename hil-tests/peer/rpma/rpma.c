/* A client and a server of librpma, in two processes. The client writes to the server's memory, flushes the
 * write, reads the bytes back and stores 8 bytes at once. Each side compares the bytes.
 *
 * Arguments: an address of the server's machine, and a port. */
#include <infiniband/verbs.h>
#include <librpma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The bytes that the client writes. The server's memory has 8 bytes more, for the store at its end. */
#define WRITTEN (1 << 20)
#define ALL (WRITTEN + 8)

static const char WORD[8] = "at once";

static void check(const char *call, int error)
{
	if (error) {
		fprintf(stderr, "%s: %s\n", call, rpma_err_2str(error));
		exit(1);
	}
}

#define CHECK(call) check(#call, call)

static void expect(const char *what, int is_so)
{
	if (!is_so) {
		fprintf(stderr, "not so: %s\n", what);
		exit(1);
	}
}

static unsigned char byte_at(size_t at)
{
	return (unsigned char)(at % 251 + 1);
}

static struct rpma_peer *peer(const char *address, enum rpma_util_ibv_context_type type)
{
	struct ibv_context *context;
	struct rpma_peer *peer;
	CHECK(rpma_utils_get_ibv_context(address, type, &context));
	CHECK(rpma_peer_new(context, &peer));
	return peer;
}

static unsigned char *memory(size_t size)
{
	void *memory = NULL;
	expect("there is memory", posix_memalign(&memory, 4096, size) == 0);
	memset(memory, 0, size);
	return memory;
}

static void wait_for(struct rpma_conn *connection, enum rpma_conn_event wanted)
{
	enum rpma_conn_event event;
	CHECK(rpma_conn_next_event(connection, &event));
	if (event != wanted) {
		fprintf(stderr, "event %s\n", rpma_utils_conn_event_2str(event));
		exit(1);
	}
}

/* Waits for the completion of an operation with this context. */
static void complete(struct rpma_conn *connection, enum ibv_wc_opcode opcode, uintptr_t operation)
{
	struct rpma_cq *queue;
	struct ibv_wc completion;
	CHECK(rpma_conn_get_cq(connection, &queue));
	int error = RPMA_E_NO_COMPLETION;
	/* librpma arms the queue before it polls. The device then may raise an event for an entry that the
	 * previous call has taken. */
	while (error == RPMA_E_NO_COMPLETION) {
		CHECK(rpma_cq_wait(queue));
		error = rpma_cq_get_wc(queue, 1, &completion, NULL);
	}
	check("rpma_cq_get_wc", error);
	expect("the operation has succeeded", completion.status == IBV_WC_SUCCESS);
	expect("the completion is of this operation",
	       completion.opcode == opcode && completion.wr_id == operation);
}

static void serve(const char *address, const char *port, int ready)
{
	struct rpma_peer *self = peer(address, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	unsigned char *bytes = memory(ALL);
	struct rpma_mr_local *region;
	struct rpma_ep *endpoint;
	struct rpma_conn_req *request;
	struct rpma_conn *connection;
	struct rpma_conn_private_data data;
	char descriptor[64];
	size_t size;
	CHECK(rpma_mr_reg(self, bytes, ALL,
			  RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC |
				  RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY,
			  &region));
	CHECK(rpma_mr_get_descriptor_size(region, &size));
	expect("the descriptor has room", size <= sizeof(descriptor));
	CHECK(rpma_mr_get_descriptor(region, descriptor));
	data.ptr = descriptor;
	data.len = (uint8_t)size;
	CHECK(rpma_ep_listen(self, address, port, &endpoint));
	expect("the client is told", write(ready, "", 1) == 1);
	CHECK(rpma_ep_next_conn_req(endpoint, NULL, &request));
	CHECK(rpma_conn_req_connect(&request, &data, &connection));
	wait_for(connection, RPMA_CONN_ESTABLISHED);
	wait_for(connection, RPMA_CONN_CLOSED);
	for (size_t at = 0; at < WRITTEN; at++)
		expect("the server has the client's bytes", bytes[at] == byte_at(at));
	expect("the server has the word", memcmp(bytes + WRITTEN, WORD, sizeof(WORD)) == 0);
	CHECK(rpma_conn_delete(&connection));
	CHECK(rpma_ep_shutdown(&endpoint));
	CHECK(rpma_mr_dereg(&region));
	CHECK(rpma_peer_delete(&self));
}

static void use(const char *address, const char *port)
{
	struct rpma_peer *self = peer(address, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	unsigned char *bytes = memory(WRITTEN), *back = memory(ALL);
	struct rpma_mr_local *source, *target;
	struct rpma_mr_remote *remote;
	struct rpma_conn_req *request;
	struct rpma_conn *connection;
	struct rpma_conn_private_data data;
	size_t size;
	for (size_t at = 0; at < WRITTEN; at++)
		bytes[at] = byte_at(at);
	CHECK(rpma_mr_reg(self, bytes, WRITTEN, RPMA_MR_USAGE_WRITE_SRC, &source));
	CHECK(rpma_mr_reg(self, back, ALL, RPMA_MR_USAGE_READ_DST, &target));
	CHECK(rpma_conn_req_new(self, address, port, NULL, &request));
	CHECK(rpma_conn_req_connect(&request, NULL, &connection));
	wait_for(connection, RPMA_CONN_ESTABLISHED);
	CHECK(rpma_conn_get_private_data(connection, &data));
	CHECK(rpma_mr_remote_from_descriptor(data.ptr, data.len, &remote));
	CHECK(rpma_mr_remote_get_size(remote, &size));
	expect("the server has this much memory", size == ALL);
	CHECK(rpma_write(connection, remote, 0, source, 0, WRITTEN, RPMA_F_COMPLETION_ON_ERROR, NULL));
	CHECK(rpma_flush(connection, remote, 0, WRITTEN, RPMA_FLUSH_TYPE_VISIBILITY,
			 RPMA_F_COMPLETION_ALWAYS, (void *)(uintptr_t)1));
	complete(connection, IBV_WC_RDMA_READ, 1);
	CHECK(rpma_atomic_write(connection, remote, WRITTEN, WORD, RPMA_F_COMPLETION_ALWAYS,
				(void *)(uintptr_t)2));
	complete(connection, IBV_WC_RDMA_WRITE, 2);
	CHECK(rpma_read(connection, target, 0, remote, 0, ALL, RPMA_F_COMPLETION_ALWAYS,
			(void *)(uintptr_t)3));
	complete(connection, IBV_WC_RDMA_READ, 3);
	expect("the client reads its bytes", memcmp(back, bytes, WRITTEN) == 0);
	expect("the client reads the word", memcmp(back + WRITTEN, WORD, sizeof(WORD)) == 0);
	CHECK(rpma_conn_disconnect(connection));
	wait_for(connection, RPMA_CONN_CLOSED);
	CHECK(rpma_mr_remote_delete(&remote));
	CHECK(rpma_conn_delete(&connection));
	CHECK(rpma_mr_dereg(&source));
	CHECK(rpma_mr_dereg(&target));
	CHECK(rpma_peer_delete(&self));
}

int main(int count, char **arguments)
{
	int ready[2], status;
	char byte;
	expect("arguments: ADDRESS PORT", count == 3 && pipe(ready) == 0);
	pid_t server = fork();
	if (server == 0) {
		serve(arguments[1], arguments[2], ready[1]);
		return 0;
	}
	close(ready[1]);
	expect("the server listens", read(ready[0], &byte, 1) == 1);
	use(arguments[1], arguments[2]);
	expect("the server has ended", waitpid(server, &status, 0) == server);
	expect("the server has succeeded", WIFEXITED(status) && WEXITSTATUS(status) == 0);
	puts("all data compared");
	return 0;
}
