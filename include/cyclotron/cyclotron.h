// cyclotron/cyclotron.h: all of the public interface.

#ifndef CYCLOTRON_CYCLOTRON_H
#define CYCLOTRON_CYCLOTRON_H

#include <cyclotron/dtype.h>
#include <cyclotron/generate.h>
#include <cyclotron/gradient.h>
#include <cyclotron/matrix.h>
#include <cyclotron/operators.h>
#include <cyclotron/status.h>
#include <cyclotron/tokenizer.h>
#include <cyclotron/train.h>

#endif
