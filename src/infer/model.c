#include "infer/model.h"

#include "base/memory.h"
#include "checkpoint/state_dict.h"

#include <jansson.h>
#include <string.h>

// The dtype that the run computed in, from the configuration that was saved with it.
static bool dtype_of_run(cy_dtype *dtype, const char *config_json)
{
    json_error_t error;
    json_t *root = json_loads(config_json, 0, &error);
    const json_t *name = json_object_get(json_object_get(root, "model"), "dtype");
    const bool known =
        json_is_string(name) && cy_dtype_from_name(dtype, json_string_value(name)) != 0;
    json_decref(root);
    return known;
}

cy_status cy_model_find(cy_checkpoint *checkpoint, cy_dtype *dtype, const char *given)
{
    cy_status status = CY_OK;
    CY_TRY(cy_checkpoint_open_located(checkpoint, given));
    if (!checkpoint->has_model || checkpoint->tensor_count == 0) {
        status = CY_FAIL(CY_ERR_CORRUPT, "%s: does not say which model it holds", checkpoint->path);
        cy_checkpoint_close(checkpoint);
        return status;
    }
    *dtype = checkpoint->tensors[0].tensor.dtype;
    if (checkpoint->config_json != NULL) dtype_of_run(dtype, checkpoint->config_json);
    return CY_OK;
}

cy_status cy_model_dtype(cy_dtype *dtype, const char *name)
{
    cy_dtype found = CY_U8;
    const bool known = cy_dtype_from_name(&found, name) != 0;
    if (!known || (found != CY_BF16 && found != CY_F16 && found != CY_F32 && found != CY_F64)) {
        return CY_FAIL(CY_ERR_REQUEST, "dtype %s: bf16, fp16, fp32 and fp64 are known", name);
    }
    *dtype = found;
    return CY_OK;
}

cy_status cy_model_tokenizer(cy_tokenizer **tokenizer, const cy_checkpoint *checkpoint)
{
    return cy_tokenizer_open(tokenizer, checkpoint->path);
}

cy_status cy_model_load(cy_decoder *decoder, cy_checkpoint *checkpoint)
{
    cy_state_dict parameters = {0};
    cy_checkpoint_traffic traffic = {0};
    checkpoint->pool = decoder->pool;
    CY_TRY(cy_state_dict_of_weights(&parameters, &decoder->storage));
    cy_status status =
        cy_checkpoint_check_tensors(checkpoint, parameters.tensors, parameters.tensor_count);
    if (status == CY_OK) {
        status = cy_checkpoint_load_checked(checkpoint, parameters.tensors, parameters.pieces,
            (int64_t)parameters.piece_count, CY_TENSOR_ADAM_M, cy_group_self(), NULL, &traffic);
    }
    cy_state_dict_close(&parameters);
    return status;
}
